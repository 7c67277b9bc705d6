package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Form is a Unicode normalization form (Unicode Standard Annex 15); package tokenfile has all of them.
type Form interface {
	// Normalize returns text in the form; text itself if it is in the form. Invalid UTF-8 stays as it is.
	Normalize(text string) string
	// Inert reports whether the form leaves r as it is, and r does not combine with what is before it.
	Inert(r rune) bool
}

// Forms are normalization forms by the names that files have for them: NFC, NFD, NFKC and NFKD.
type Forms map[string]Form

// normalizer is one step that changes text before the pre-tokenizer (huggingface/tokenizers,
// normalizers/).
type normalizer struct {
	kind        normalizerKind
	form        Form     // normalForm
	composed    bool     // normalForm: it is form C
	content     string   // normalPrepend: the prefix; normalReplace: the replacement
	old         string   // normalReplace: the literal to replace
	pattern     *pattern // normalReplace: or the expression to replace
	left, right bool     // normalStrip
}

type normalizerKind uint8

const (
	normalForm      normalizerKind = iota // NFC, NFD, NFKC, NFKD
	normalLowercase                       // rune by rune
	normalPrepend                         // only if the text is not empty
	normalReplace
	normalStrip // of white space
)

// newNormalizer returns the step p. It bails out for a step that is not supported.
func newNormalizer(p *partJSON, forms Forms) (n normalizer) {
	switch p.Type {
	case "NFC", "NFD", "NFKC", "NFKD":
		n = normalizer{kind: normalForm, form: forms[p.Type], composed: p.Type == "NFC"}
		if n.form == nil {
			unsupported("normalizer %q without this form; package tokenfile has it", p.Type)
		}
	case "Lowercase":
		n = normalizer{kind: normalLowercase}
	case "Prepend":
		n = normalizer{kind: normalPrepend, content: p.Prepend}
	case "Strip":
		n = normalizer{kind: normalStrip, left: p.StripLeft == nil || *p.StripLeft, right: p.StripRight == nil || *p.StripRight}
	case "Replace":
		n = normalizer{kind: normalReplace, content: p.Content, old: p.Pattern.String}
		if p.Pattern.Regex != "" {
			n.pattern = newPattern(p.Pattern.Regex)
		}
	default:
		unsupported("normalizer %q; supported are NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip and Sequences of these", p.Type)
	}
	return n
}

// normalize returns text after all steps. It does not allocate if they leave the text unchanged.
func (t *Tokenizer) normalize(text string, s *scratch) string {
	for i := range t.normalizers {
		text = t.normalizers[i].apply(text, s)
	}
	return text
}

func (n *normalizer) apply(text string, s *scratch) string {
	switch n.kind {
	case normalForm:
		return n.normalize(text)
	case normalLowercase:
		return lowercase(text)
	case normalPrepend:
		if text == "" || s.inside { // the text began earlier
			return text
		}
		return n.content + text
	case normalStrip:
		if n.left {
			text = strings.TrimLeftFunc(text, unicode.IsSpace)
		}
		if n.right {
			text = strings.TrimRightFunc(text, unicode.IsSpace)
		}
		return text
	}
	if n.pattern != nil {
		return n.pattern.replace(text, n.content, s)
	}
	if n.old == "" {
		return text
	}
	return strings.ReplaceAll(text, n.old, n.content)
}

// normalize converts text to the normalization form of n. ASCII is in all forms already, and runes below U+0300 are in form C.
func (n *normalizer) normalize(text string) string {
	limit := byte(utf8.RuneSelf)
	if n.composed {
		limit = 0xCC // the first byte of U+0300, the first combining mark
	}
	if below(text, limit) {
		return text
	}
	return n.form.Normalize(text)
}

// below reports whether all bytes of text are less than limit.
func below(text string, limit byte) bool {
	for i := range len(text) {
		if text[i] >= limit {
			return false
		}
	}
	return true
}

// lowercase maps each rune separately, so a final sigma is treated like any other. The only
// rune whose lower case has two runes is U+0130 (Unicode, SpecialCasing.txt). Invalid UTF-8
// stays as it is.
func lowercase(text string) string {
	var out strings.Builder
	kept := 0 // text[:kept] has been written
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		lower := unicode.ToLower(r)
		if lower != r || r == 'İ' {
			out.WriteString(text[kept:i])
			if r == 'İ' {
				out.WriteString("i\u0307")
			} else {
				out.WriteRune(lower)
			}
			kept = i + n
		}
		i += n
	}
	if kept == 0 {
		return text
	}
	out.WriteString(text[kept:])
	return out.String()
}
