package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// splitter splits text into the pieces inside which BPE merges. Each value is the regular
// expression of a model family, implemented by hand, because the expressions need look-ahead
// and the hot path needs speed. Unicode classes are those of Go's unicode package (Unicode 15.0
// in Go 1.26). Hugging Face's library 0.23 uses Unicode 16, which has 5,004 more letters and
// digits, all of them in newly added scripts and extensions.
type splitter uint8

const (
	splitLlama3 splitter = iota // also cl100k: up to three digits per piece
	splitQwen2                  // like Llama 3, but one digit per piece
	splitGPT2
	splitTekken // Mistral NeMo: words are split by case
	splitO200k  // GPT-4o, gpt-oss, Llama 4: by case with contractions, up to three digits per piece
	splitDeepSeek3
)

// The splitting expressions of model families as in their tokenizer.json. GPT-2's is built into
// the ByteLevel pre-tokenizer (huggingface/tokenizers, pre_tokenizers/byte_level.rs).
const (
	PatternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	PatternQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	PatternTekken = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	PatternO200k  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	PatternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
)

// knownPatterns maps an expression to its hand-written splitter.
var knownPatterns = map[string]splitter{
	PatternLlama3: splitLlama3, PatternQwen2: splitQwen2, PatternGPT2: splitGPT2,
	PatternTekken: splitTekken, PatternO200k: splitO200k,
}

// class is the role of a rune in the expressions.
type class uint8

const (
	symbol  class = iota // [^\s\p{L}\p{N}], and invalid UTF-8 bytes
	letter               // \p{L}
	number               // \p{N}
	space                // \s without newline
	newline              // [\r\n], also part of \s
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

// classAt returns the class and the length of the rune at text[i]; the length is 0 at the end
// of text.
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

// run returns the end of the longest run of runes of class c that begins at text[i]; i if there
// is none.
func run(text string, i int, c class) int {
	for {
		next, n := classAt(text, i)
		if n == 0 || next != c {
			return i
		}
		i += n
	}
}

// next returns the length of the first piece of text, which must not be empty.
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

// nextCl100k returns the length of the first piece of text. It tries the alternatives of
// PatternLlama3 in order. digits is the most digits of a piece.
func nextCl100k(text string, digits int) int {
	c, n := classAt(text, 0)
	switch c {
	case letter: // \p{L}+
		return run(text, n, letter)
	case number: // \p{N}{1,3}
		return runNumber(text, n, digits)
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

// nextGPT2 returns the length of the first piece of text. It tries the alternatives of
// PatternGPT2 in order.
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

// spaces scans the white space at the beginning of text and returns its end, the end of its
// last newline (0 without one), and the start of its last rune.
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

// leaveOne returns the end of the match of \s+(?!\S)|\s+, where text[:end] is white space and
// last is the start of its last rune. It leaves that rune for the word that follows, unless the
// rune is the only one or no text follows.
func leaveOne(text string, end, last int) int {
	if end == len(text) || last == 0 {
		return end
	}
	return last
}
