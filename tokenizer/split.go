package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// splitter cuts text into the pieces inside which merging happens. Each value
// is one regular expression of a model family, written out by hand, because
// the expressions need look-ahead and the hot path needs speed. Unicode classes
// are those of Go's unicode package (Unicode 15.0 in Go 1.26). Hugging Face's
// library 0.23 is at Unicode 16, which has 5,004 letters and digits more, all
// of them in scripts and extensions that were added since.
type splitter uint8

const (
	splitLlama3 splitter = iota // also cl100k: digits in threes
	splitQwen2                  // as Llama 3, but digits one by one
	splitGPT2
	splitTekken // Mistral NeMo: words by case
	splitO200k  // GPT-4o, gpt-oss, Llama 4: the same with contractions, digits in threes
	splitDeepSeek3
)

// The splitting expressions of model families as they stand in tokenizer.json. GPT-2's is the one that a
// ByteLevel pre-tokenizer has built in (huggingface/tokenizers,
// pre_tokenizers/byte_level.rs).
const (
	PatternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	PatternQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	PatternTekken = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	PatternO200k  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	PatternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
)

// knownPatterns finds the splitter that does what an expression says.
var knownPatterns = map[string]splitter{
	PatternLlama3: splitLlama3, PatternQwen2: splitQwen2, PatternGPT2: splitGPT2,
	PatternTekken: splitTekken, PatternO200k: splitO200k,
}

// class is the role of a rune in the expressions.
type class uint8

const (
	symbol  class = iota // [^\s\p{L}\p{N}], and bytes that are no UTF-8
	letter               // \p{L}
	number               // \p{N}
	space                // \s but newline
	newline              // [\r\n], which is \s too
)

var asciiClass = makeASCIIClass()

func makeASCIIClass() (table [utf8.RuneSelf]class) {
	for b := range table {
		table[b] = classOf(rune(b))
	}
	return table
}

func classOf(r rune) class {
	switch {
	case r == '\r' || r == '\n':
		return newline
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return symbol
}

// classAt is the class of the rune at text[i], and its length; the length is 0
// at the end of text.
func classAt(text string, i int) (class, int) {
	if i >= len(text) {
		return symbol, 0
	}
	if b := text[i]; b < utf8.RuneSelf {
		return asciiClass[b], 1
	}
	r, n := utf8.DecodeRuneInString(text[i:])
	return classOf(r), n
}

// run is the end of the run of runes of class c that goes on at text[i].
func run(text string, i int, c class) int {
	for {
		next, n := classAt(text, i)
		if n == 0 || next != c {
			return i
		}
		i += n
	}
}

// next is the length of the first piece of text, which must not be empty.
func (s splitter) next(text string) int {
	switch s {
	case splitLlama3:
		return nextCl100k(text, 3)
	case splitQwen2:
		return nextCl100k(text, 1)
	case splitTekken:
		return nextCased(text, 1, false)
	case splitO200k:
		return nextCased(text, 3, true)
	case splitDeepSeek3:
		return nextDeepSeek3(text)
	}
	return nextGPT2(text)
}

// nextCl100k tries the alternatives of PatternLlama3 in their order. digits is
// the most that one piece may hold.
func nextCl100k(text string, digits int) int {
	c, n := classAt(text, 0)
	switch c {
	case letter: // \p{L}+
		return run(text, n, letter)
	case number: // \p{N}{1,3}
		i := n
		for range digits - 1 {
			next, n := classAt(text, i)
			if next != number {
				break
			}
			i += n
		}
		return i
	}
	if end := contractionFold(text); end > 0 {
		return end
	}
	next, m := classAt(text, n)
	if c != newline && m > 0 && next == letter { // [^\r\n\p{L}\p{N}]\p{L}+
		return run(text, n+m, letter)
	}
	if c == symbol { // [^\s\p{L}\p{N}]+[\r\n]*
		return run(text, run(text, n, symbol), newline)
	}
	if text[0] == ' ' && m > 0 && next == symbol { // the same after a space
		return run(text, run(text, n+m, symbol), newline)
	}
	end, afterNewline, last := spaces(text)
	if afterNewline > 0 { // \s*[\r\n]+
		return afterNewline
	}
	return leaveOne(text, end, last)
}

// nextGPT2 tries the alternatives of PatternGPT2 in their order.
func nextGPT2(text string) int {
	if end := contraction(text); end > 0 {
		return end
	}
	c, n := classAt(text, 0)
	if text[0] == ' ' {
		if next, m := classAt(text, 1); m > 0 {
			c, n = next, 1+m
		}
	}
	if c == letter || c == number || c == symbol {
		return run(text, n, c)
	}
	end, _, last := spaces(text)
	return leaveOne(text, end, last)
}

// spaces walks the white space that text begins with: its end, the end of its
// last newline (0 without one), and where its last rune begins.
func spaces(text string) (end, afterNewline, last int) {
	for {
		c, n := classAt(text, end)
		if n == 0 || c != space && c != newline {
			return end, afterNewline, last
		}
		last = end
		end += n
		if c == newline {
			afterNewline = end
		}
	}
}

// leaveOne is \s+(?!\S)|\s+ for white space that ends at end: the last rune
// stays behind for the word that follows, unless it is all there is.
func leaveOne(text string, end, last int) int {
	if end == len(text) || last == 0 {
		return end
	}
	return last
}
