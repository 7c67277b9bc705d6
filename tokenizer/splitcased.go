package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// The splitters of Mistral's tekken and OpenAI's o200k distinguish upper and lower case, so
// that each word of camelCase is a piece.

// caseClass is the role of a rune in their expressions.
type caseClass uint8

const (
	casedSymbol  caseClass = iota // neither letter nor mark nor number nor space, and invalid UTF-8 bytes
	casedMark                     // \p{M}: both upper and lower, but not a letter
	casedAny                      // [\p{Lm}\p{Lo}]: both upper and lower
	casedUpper                    // [\p{Lu}\p{Lt}]
	casedLower                    // \p{Ll}
	casedNumber                   // \p{N}
	casedSpace                    // \s without newline
	casedNewline                  // [\r\n]
)

// inUpper and inLower report membership in [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and
// [\p{Ll}\p{Lm}\p{Lo}\p{M}].
func (c caseClass) inUpper() bool { return casedMark <= c && c <= casedUpper }
func (c caseClass) inLower() bool { return c == casedMark || c == casedAny || c == casedLower }

// symbol reports membership in [^\s\p{L}\p{N}], which includes marks.
func (c caseClass) symbol() bool { return c <= casedMark }

var asciiCase = makeASCIICase()

func makeASCIICase() (table [utf8.RuneSelf]caseClass) {
	for b := range table {
		table[b] = caseOf(rune(b))
	}
	return table
}

func caseOf(r rune) caseClass {
	switch classOf(r) {
	case newline:
		return casedNewline
	case number:
		return casedNumber
	case space:
		return casedSpace
	case symbol:
		if unicode.Is(unicode.M, r) {
			return casedMark
		}
		return casedSymbol
	}
	switch {
	case unicode.Is(unicode.Ll, r):
		return casedLower
	case unicode.In(r, unicode.Lu, unicode.Lt):
		return casedUpper
	}
	return casedAny
}

// caseAt returns the class and the length of the rune at text[i]; the length is 0 at the end of
// text.
func caseAt(text string, i int) (caseClass, int) {
	if i >= len(text) {
		return casedSymbol, 0
	}
	if b := text[i]; b < utf8.RuneSelf {
		return asciiCase[b], 1
	}
	r, n := utf8.DecodeRuneInString(text[i:])
	return caseOf(r), n
}

// nextCased returns the length of the first piece of text. It tries the alternatives of
// PatternTekken in order, or with contractions set those of PatternO200k, in which contractions
// belong to the word. digits is the most digits of a piece.
func nextCased(text string, digits int, contractions bool) int {
	c, n := caseAt(text, 0)
	if c == casedNumber {
		return runNumber(text, n, digits)
	}
	if end := casedWord(text, c, n); end > 0 {
		if contractions {
			end += contractionFold(text[end:])
		}
		return end
	}
	if text[0] == ' ' {
		if next, m := caseAt(text, n); m > 0 && next.symbol() {
			return symbolRun(text, n+m)
		}
	}
	if c.symbol() {
		return symbolRun(text, n)
	}
	end, afterNewline, last := spaces(text)
	if afterNewline > 0 {
		return afterNewline
	}
	return leaveOne(text, end, last)
}

// runNumber returns the end of a number of which one rune precedes text[i]. most is the largest
// number of runes of the number.
func runNumber(text string, i, most int) int {
	for range most - 1 {
		c, n := classAt(text, i)
		if n == 0 || c != number {
			break
		}
		i += n
	}
	return i
}

// casedWord returns the end of the word that text begins with, by the two alternatives for words,
// or 0 if neither matches. c and n are the class and the length of the first rune: a rune that is
// no newline, letter or number may precede the word's letters.
func casedWord(text string, c caseClass, n int) int {
	prefix := c == casedSymbol || c == casedMark || c == casedSpace
	if prefix {
		if end := lowerWord(text, n); end > 0 {
			return end
		}
	}
	if end := lowerWord(text, 0); end > 0 {
		return end
	}
	if prefix {
		if end := upperWord(text, n); end > 0 {
			return end
		}
	}
	return upperWord(text, 0)
}

// lowerWord returns the end of the match of U*L+ at text[i], or 0. U are the runes with inUpper,
// L those with inLower. U* is greedy; if no L follows, it backtracks to its last rune that is
// also in L.
func lowerWord(text string, i int) int {
	both := 0 // end of the last rune so far that is in both
	for {
		c, n := caseAt(text, i)
		if n == 0 || !c.inUpper() {
			break
		}
		i += n
		if c.inLower() {
			both = i
		}
	}
	end := lowerRun(text, i)
	if end > i {
		return end
	}
	return both
}

// upperWord returns the end of the match of U+L* at text[i], or 0; for U and L see lowerWord.
func upperWord(text string, i int) int {
	end := i
	for {
		c, n := caseAt(text, end)
		if n == 0 || !c.inUpper() {
			break
		}
		end += n
	}
	if end == i {
		return 0
	}
	return lowerRun(text, end)
}

func lowerRun(text string, i int) int {
	for {
		c, n := caseAt(text, i)
		if n == 0 || !c.inLower() {
			return i
		}
		i += n
	}
}

// symbolRun returns the end of the match of [^\s\p{L}\p{N}]+[\r\n/]* whose first rune ends at
// text[i].
func symbolRun(text string, i int) int {
	for {
		c, n := caseAt(text, i)
		if n == 0 || !c.symbol() {
			break
		}
		i += n
	}
	for i < len(text) && (text[i] == '\r' || text[i] == '\n' || text[i] == '/') {
		i++
	}
	return i
}
