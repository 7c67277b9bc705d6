package tokenizer

import (
	"fmt"
	"os"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// testForms are the forms of package tokenfile, which imports this one.
var testForms = Forms{"NFC": testForm{norm.NFC}, "NFD": testForm{norm.NFD}, "NFKC": testForm{norm.NFKC}, "NFKD": testForm{norm.NFKD}}

type testForm struct{ norm.Form }

func (f testForm) Normalize(text string) string { return f.String(text) }

func (f testForm) Inert(r rune) bool {
	s := utf8.AppendRune(nil, r)
	return f.Properties(s).BoundaryBefore() && f.IsNormal(s)
}

// parse is Parse with all forms.
func parse(tokenizerJSON, configJSON []byte) (*Tokenizer, error) {
	return Parse(tokenizerJSON, configJSON, testForms)
}

// open parses the tokenizer.json at path.
func open(path string) (*Tokenizer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t, err := parse(data, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}
