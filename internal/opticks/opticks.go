package opticks

import (
	_ "embed"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of the results of Paragraphs and Questions, in bytes.
const (
	minParagraphBytes = 80
	minQuestionBytes  = 20
	maxQuestionBytes  = 400
)

//go:embed opticks.txt
var text string

// Text returns the whole excerpt: valid UTF-8, about 180 KB, with one line per paragraph, a blank line
// between paragraphs, and a newline at the end.
func Text() string { return text }

// Paragraphs returns the paragraphs of Text in their order, without headings and other short
// paragraphs: each has at least 80 bytes and no newline. The caller owns the slice. The cost is
// linear in the length of the text.
func Paragraphs() []string {
	return slices.DeleteFunc(all(), func(p string) bool { return len(p) < minParagraphBytes })
}

// Questions returns the sentences of Text that end in a question mark and have 20 to 400 bytes,
// in their order. The caller owns the slice. The cost is linear in the length of the text.
func Questions() []string {
	var out []string
	for _, p := range all() {
		for p != "" {
			n := sentenceEnd(p)
			s := strings.TrimSpace(p[:n])
			p = strings.TrimLeft(p[n:], " ")
			if strings.HasSuffix(s, "?") && minQuestionBytes <= len(s) && len(s) <= maxQuestionBytes {
				out = append(out, s)
			}
		}
	}
	return out
}

func all() []string { return strings.Split(strings.TrimSpace(text), "\n\n") }

// abbreviations are words of the text whose full stop does not end a sentence, although an upper-case
// letter may follow.
var abbreviations = []string{"Fig", "Mr", "Dr", "M", "p", "Prop", "Obs", "Exper", "Sect", "Cas", "S", "Theor", "&c"}

// sentenceEnd returns the length of the first sentence of p; all of p if there is only one. A sentence
// ends with ".", "?" or "!" before a space and an upper-case letter, unless its last word is an
// abbreviation. The number of a query ("Qu. 5.") is thus a separate sentence and not part of the
// question.
func sentenceEnd(p string) int {
	for i := 0; i+2 < len(p); i++ {
		if !strings.ContainsRune(".?!", rune(p[i])) || p[i+1] != ' ' {
			continue
		}
		next, _ := utf8.DecodeRuneInString(strings.TrimLeft(p[i+2:], "'["))
		if !unicode.IsUpper(next) {
			continue
		}
		if p[i] != '.' || !endsInAbbreviation(p[:i]) {
			return i + 1
		}
	}
	return len(p)
}

func endsInAbbreviation(s string) bool {
	return slices.Contains(abbreviations, s[strings.LastIndexAny(s, " [(")+1:])
}
