package tokenizer

import (
	"slices"
	"unicode"
	"unicode/utf8"
)

// patternsDeepSeek3 are the expressions of DeepSeek V3, R1 and V4, applied in order: each
// splits the pieces of the previous one, matches or not.
var patternsDeepSeek3 = [3]string{
	`\p{N}{1,3}`,
	"[一-龥\u3040-ゟ゠-ヿ]+",
	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
}

// PatternsDeepSeek3 returns the splitting expressions of DeepSeek V3, R1 and V4, in the order
// in which tokenizer.json applies them.
func PatternsDeepSeek3() []string { return slices.Clone(patternsDeepSeek3[:]) }

// deepClass is the role of a rune in those expressions.
type deepClass uint8

const (
	deepOther   deepClass = iota // none of the others: controls, formats, unassigned
	deepWord                     // [\p{L}\p{M}]
	deepSymbol                   // [\p{P}\p{S}], and invalid UTF-8 bytes
	deepSpace                    // \s without newline
	deepNewline                  // [\r\n]
	deepNumber                   // \p{N}: never in a piece with other classes
	deepEnd                      // the end of a piece of the first two expressions
)

var asciiDeep = func() (table [utf8.RuneSelf]deepClass) {
	for b := range table {
		table[b] = deepOf(rune(b))
	}
	return table
}()

func deepOf(r rune) deepClass {
	switch classOf(r) {
	case newline:
		return deepNewline
	case letter:
		return deepWord
	case number:
		return deepNumber
	case space:
		return deepSpace
	}
	switch {
	case unicode.Is(unicode.M, r):
		return deepWord
	case r == utf8.RuneError || unicode.In(r, unicode.P, unicode.S):
		return deepSymbol
	}
	return deepOther
}

// isHan reports whether the second expression matches r.
func isHan(r rune) bool { return '一' <= r && r <= '龥' || '\u3040' <= r && r <= 'ヿ' }

// deepText is text to be split. The second expression separates Han and kana, with the rest of
// their blocks, from all other text.
type deepText struct {
	text string
	han  bool // whether it begins with Han or kana
}

// at returns the class and the length of the rune at text[i]; deepEnd and 0 where the first two
// expressions split.
func (d *deepText) at(i int) (deepClass, int) {
	if i >= len(d.text) {
		return deepEnd, 0
	}
	if b := d.text[i]; b < utf8.RuneSelf {
		if c := asciiDeep[b]; !d.han && c != deepNumber {
			return c, 1
		}
		return deepEnd, 0
	}
	r, n := utf8.DecodeRuneInString(d.text[i:])
	c := deepOf(r)
	if c == deepNumber || isHan(r) != d.han {
		return deepEnd, 0
	}
	return c, n
}

// run returns the end of the longest run of runes of class c that begins at text[i]; i if there
// is none.
func (d *deepText) run(i int, c deepClass) int {
	for {
		next, n := d.at(i)
		if n == 0 || next != c {
			return i
		}
		i += n
	}
}

// nextDeepSeek3 returns the length of the first piece of text.
func nextDeepSeek3(text string) int {
	r, n := utf8.DecodeRuneInString(text)
	if classOf(r) == number {
		return runNumber(text, n, 3)
	}
	d := deepText{text: text, han: isHan(r)}
	c, n := d.at(0)
	if end := d.match(c, n); end > 0 {
		return end
	}
	// Text that matches nothing is one piece, up to the beginning of the next match.
	for at := n; ; at += n {
		if c, n = d.at(at); c != deepOther {
			return at
		}
		if next, _ := d.at(at + n); next == deepWord {
			return at
		}
	}
}

// match tries the alternatives of the third expression in order and returns the length of the
// match, or 0. c and n are the class and the length of the first rune.
func (d *deepText) match(c deepClass, n int) int {
	next, m := d.at(n)
	switch {
	case c == deepSymbol && d.text[0] < utf8.RuneSelf && isASCIILetter(d.text, n): // [!-/:-@\[-`{-~][A-Za-z]+
		end := n + 1
		for isASCIILetter(d.text, end) {
			end++
		}
		return end
	case c == deepWord: // [\p{L}\p{M}]+
		return d.run(n, deepWord)
	case next == deepWord && (c == deepSpace || c == deepOther): // [^\r\n\p{L}\p{P}\p{S}][\p{L}\p{M}]+
		return d.run(n+m, deepWord)
	case c == deepSymbol: // [\p{P}\p{S}]+[\r\n]*
		return d.run(d.run(n, deepSymbol), deepNewline)
	case d.text[0] == ' ' && next == deepSymbol: // the same after a space
		return d.run(d.run(n+m, deepSymbol), deepNewline)
	case c == deepSpace || c == deepNewline:
		return d.spaces()
	}
	return 0
}

// spaces returns the length of the match of \s*[\r\n]+|\s+(?!\S)|\s+; d.text must begin with
// white space.
func (d *deepText) spaces() int {
	end, last, afterNewline := 0, 0, 0
	for {
		c, n := d.at(end)
		if c != deepSpace && c != deepNewline {
			switch {
			case afterNewline > 0:
				return afterNewline
			case c == deepEnd || last == 0:
				return end
			}
			return last // the last space is left for the following word
		}
		last = end
		end += n
		if c == deepNewline {
			afterNewline = end
		}
	}
}

func isASCIILetter(text string, i int) bool {
	return i < len(text) && ('a' <= text[i]|0x20 && text[i]|0x20 <= 'z')
}
