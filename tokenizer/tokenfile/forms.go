package tokenfile

import (
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/coppice-llm/coppice/tokenizer"
)

// forms are the normalization forms by the names that files have for them.
var forms = tokenizer.Forms{"NFC": form{norm.NFC}, "NFD": form{norm.NFD}, "NFKC": form{norm.NFKC}, "NFKD": form{norm.NFKD}}

// form is a tokenizer.Form.
type form struct{ of norm.Form }

func (f form) Normalize(text string) string {
	if f.of.IsNormalString(text) {
		return text
	}
	return f.of.String(text)
}

func (f form) Inert(r rune) bool {
	var b [utf8.UTFMax]byte
	s := b[:utf8.EncodeRune(b[:], r)]
	return f.of.Properties(s).BoundaryBefore() && f.of.IsNormal(s)
}
