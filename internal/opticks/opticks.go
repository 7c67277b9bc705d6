package opticks

import (
	_ "embed"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The bounds of what Paragraphs and Questions return, in bytes.
const (
	minParagraphBytes = 80
	minQuestionBytes  = 20
	maxQuestionBytes  = 400
)

//go:embed opticks.txt
var text string

// Text is the whole excerpt: valid UTF-8, about 180 KB, one line per paragraph,
// paragraphs separated by one blank line, ending in a newline.
func Text() string { return text }

// Paragraphs are the paragraphs of Text in their order, without headings and
// other short ones: each has at least 80 bytes and no newline. The slice is the
// caller's. It walks the text.
func Paragraphs() []string {
	var out []string
	for _, p := range all() {
		if len(p) >= minParagraphBytes {
			out = append(out, p)
		}
	}
	return out
}

// Questions are the sentences of Text that end in a question mark and have 20
// to 400 bytes, in their order. The slice is the caller's. It walks the text.
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

// abbreviations are the words of the text whose full stop ends no sentence
// though an upper-case letter may follow.
var abbreviations = []string{"Fig", "Mr", "Dr", "M", "p", "Prop", "Obs", "Exper", "Sect", "Cas", "S", "Theor", "&c"}

// sentenceEnd is the length of the first sentence of p, all of p if it is the
// last. A sentence ends in ".", "?" or "!" before a space and an upper-case
// letter, if the word is no abbreviation. The number of a query ("Qu. 5.") is
// hence a sentence of its own and not part of the question.
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
	word := s[strings.LastIndexAny(s, " [(")+1:]
	for _, a := range abbreviations {
		if word == a {
			return true
		}
	}
	return false
}
