package tokenizer

import (
	"github.com/coppice-llm/coppice/internal/invariants"
)

// alphabet maps each byte to the printable rune that represents it in the vocabulary of a
// byte-level tokenizer: printable Latin-1 represents itself, the 68 other bytes get the runes
// from U+0100 on, in order (openai/gpt-2, encoder.py, bytes_to_unicode).
var alphabet, alphabetBytes = makeAlphabet()

// ByteRunes returns the rune of each byte in that alphabet.
func ByteRunes() [256]rune { return alphabet }

// alphabetRunes is one more than the alphabet's highest rune.
const alphabetRunes = 0x100 + 68

// makeAlphabet returns the alphabet and its inverse, which is -1 for runes outside the
// alphabet.
func makeAlphabet() (runes [256]rune, inverse [alphabetRunes]int16) {
	for i := range inverse {
		inverse[i] = -1
	}
	next := rune(0x100)
	for b := range runes {
		r := rune(b)
		if !('!' <= r && r <= '~' || 0xA1 <= r && r <= 0xAC || 0xAE <= r && r <= 0xFF) {
			r = next
			next++
		}
		runes[b] = r
		inverse[r] = int16(b)
	}
	if invariants.Enabled && next != alphabetRunes {
		panic("tokenizer: the byte alphabet ends at " + string(next))
	}
	return runes, inverse
}

// toBytes returns the bytes that the runes of name represent. It returns false if a rune of name
// is not in the alphabet.
func toBytes(name string) (string, bool) {
	out := make([]byte, 0, len(name))
	for _, r := range name {
		if r >= alphabetRunes || alphabetBytes[r] < 0 {
			return "", false
		}
		out = append(out, byte(alphabetBytes[r]))
	}
	return string(out), true
}
