package terminal

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestShow(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"plain\n\ttext, é, 語, 👩‍🚀":  "plain\n\ttext, é, 語, 👩‍🚀",
		"\x1b]0;title\x07":          `\x1b]0;title\x07`,
		"\x1b[2J\x1b[H":             `\x1b[2J\x1b[H`,
		"a\rb\bc\x7f\x00":           `a\x0db\x08c\x7f\x00`,
		"\u009b2J":                  `\x9b2J`,
		"\u202eevil\u202c":          `\u202eevil\u202c`,
		"\u2066a\u2069\u200f\u061c": `\u2066a\u2069\u200f\u061c`,
		"\xff\xc3\x28\xed\xa0\x80":  `\xff\xc3(\xed\xa0\x80`,
		"\ufffd":                    "\ufffd",
	} {
		if got := show(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
		var b bytes.Buffer
		if n, err := (writer{&b}).Write([]byte(text)); n != len(text) || err != nil || b.String() != want {
			t.Errorf("%q: %d, %v, %q", text, n, err, b.String())
		}
	}
}

func TestQuote(t *testing.T) {
	for text, want := range map[string]string{
		"no such model":            `"no such model"`,
		"a\nb\x1b\"":               `"a\nb\x1b\""`,
		"\u202e\xff":               `"\u202e\xff"`,
		strings.Repeat("x", 200):   `"` + strings.Repeat("x", 200) + `"`,
		strings.Repeat("x", 201):   `"` + strings.Repeat("x", 200) + `"…`,
		strings.Repeat("\x1b", 60): `"` + strings.Repeat(`\x1b`, 50) + `"…`,
		strings.Repeat("語", 100):   `"` + strings.Repeat("語", 66) + `"…`,
	} {
		if got := Quote(text); got != want || got != Quote([]byte(text)) {
			t.Errorf("%q is quoted as %s, want %s", text, got, want)
		}
	}
}

// FuzzShow: nothing that a terminal obeys passes, however the text is made.
func FuzzShow(f *testing.F) {
	f.Add("\x1b]52;c;aGk=\x07\u202e\xc2")
	f.Fuzz(func(t *testing.T, text string) {
		for _, got := range []string{show(text), Quote(text)} {
			if !utf8.ValidString(got) || strings.IndexFunc(got, controls) >= 0 {
				t.Fatalf("%q gives %q", text, got)
			}
		}
		if show(text) != show(show(text)) {
			t.Fatalf("%q is shown differently the second time", text)
		}
	})
}
