package tokenizer

import (
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/kv"
)

// symbols are the tokens with which merging begins: one per byte (byteLevel), or one per rune;
// a rune without a token becomes the tokens of its bytes or the unknown token
// (huggingface/tokenizers, models/bpe/model.rs, merge_word). Bytes and runes without any of
// these are dropped, and their neighbours merge as if adjacent.
type symbols struct {
	byteLevel bool
	longest   int                     // the largest number of symbols in a token
	bytes     [256]kv.Token           // token of each byte; noToken if there is none
	every     bool                    // byteLevel and complete
	ascii     [utf8.RuneSelf]kv.Token // noToken if there is none
	runes     map[rune]kv.Token
	unk       kv.Token // noToken if there is none
	fuseUnk   bool     // adjacent runes without a token become one unknown token
}

// noToken means no token: no vocabulary is that large.
const noToken = ^kv.Token(0)

// readSymbols looks up the symbols in the vocabulary.
func (t *Tokenizer) readSymbols(m *modelJSON) {
	t.unk, t.fuseUnk = noToken, m.FuseUnk
	if m.Unk != nil {
		if t.unk = m.Vocab.token(*m.Unk); t.unk == noToken && !t.byteLevel {
			invalid("unk_token %q is not in the vocabulary", *m.Unk)
		}
	}
	if t.byteLevel {
		t.readBytes(m)
		return
	}
	for b := range t.bytes {
		t.bytes[b] = noToken
		if m.ByteFallback {
			t.bytes[b] = m.Vocab.token(byteName(byte(b)))
		}
	}
	t.runes = map[rune]kv.Token{}
	for r := range t.ascii {
		t.ascii[r] = m.Vocab.token(string(rune(r)))
	}
	for name, id := range m.Vocab {
		if r, n := utf8.DecodeRuneInString(name); n > 0 && n == len(name) {
			t.runes[r] = id
		}
	}
}

// readBytes looks up the tokens of the bytes of a byte-level vocabulary. Trainers omit bytes
// that their text lacked: SmolLM2 lacks 21.
func (t *Tokenizer) readBytes(m *modelJSON) {
	for b, r := range alphabet {
		if t.bytes[b] = m.Vocab.token(string(r)); t.bytes[b] != noToken {
			continue
		}
		if m.Unk != nil && t.unk == noToken {
			invalid("unk_token %q is not in the vocabulary, which lacks byte 0x%02x", *m.Unk, b)
		}
		if m.ByteFallback && m.Vocab.token(byteName(string(r)[0])) != noToken {
			unsupported("byte_fallback for byte 0x%02x, which the byte-level vocabulary has no token %q for; supported is byte_fallback without ByteLevel", b, r)
		}
	}
	t.every = t.complete()
}

// token returns the token with that name, or noToken.
func (v vocabJSON) token(name string) kv.Token {
	if id, ok := v[name]; ok {
		return id
	}
	return noToken
}

// byteName returns a byte's name in SentencePiece vocabularies.
func byteName(b byte) string { return fmt.Sprintf("<0x%02X>", b) }

// byteNamed is the inverse of byteName; it returns false if name is no byte's name.
func byteNamed(name string) (byte, bool) {
	if len(name) != 6 || name[:3] != "<0x" || name[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(name[3:5], 16, 8)
	return byte(b), err == nil
}

// complete reports whether every byte has a token, so that no text is unknown.
func (y *symbols) complete() bool { return !slices.Contains(y.bytes[:], noToken) }

// fewest returns the least number of symbols of a piece with that many bytes.
func (y *symbols) fewest(bytes int) int {
	switch {
	case y.every:
		return bytes
	case y.drops():
		return 0
	}
	return (bytes + utf8.UTFMax - 1) / utf8.UTFMax
}

// drops reports whether some texts, however long, have few symbols or none: bytes or runes without a
// token are left out, or fuse to one unknown token.
func (y *symbols) drops() bool {
	return !y.complete() && (y.unk == noToken || y.fuseUnk)
}

// spell appends the tokens with which merging of piece begins, at most len(piece).
func (y *symbols) spell(dst []kv.Token, piece string) []kv.Token {
	if y.every {
		for i := range len(piece) {
			dst = append(dst, y.bytes[piece[i]])
		}
		return dst
	}
	if y.byteLevel {
		return y.spellKnown(dst, piece)
	}
	unknown := false // an unknown token must be appended
	for i := 0; i < len(piece); {
		if b := piece[i]; b < utf8.RuneSelf && y.ascii[b] != noToken && !unknown {
			dst = append(dst, y.ascii[b])
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(piece[i:])
		id, ok := y.runes[r]
		whole := piece[i : i+n]
		i += n
		if ok && (r != utf8.RuneError || n > 1) {
			if unknown {
				dst, unknown = append(dst, y.unk), false
			}
			dst = append(dst, id)
			continue
		}
		var spelled bool
		if dst, spelled = y.spellBytes(dst, whole); spelled || y.unk == noToken {
			continue
		}
		if unknown && !y.fuseUnk {
			dst = append(dst, y.unk)
		}
		unknown = true
	}
	if unknown {
		dst = append(dst, y.unk)
	}
	return dst
}

// spellKnown is spell for a byte-level vocabulary that lacks bytes.
func (y *symbols) spellKnown(dst []kv.Token, piece string) []kv.Token {
	unknown := false // the previous byte was unknown
	for i := range len(piece) {
		id := y.bytes[piece[i]]
		switch {
		case id != noToken:
			dst = append(dst, id)
		case y.unk != noToken && !(unknown && y.fuseUnk):
			dst = append(dst, y.unk)
		}
		unknown = id == noToken
	}
	return dst
}

// spellBytes appends to dst the tokens of the bytes of the rune whole. If a byte has no token, it
// appends nothing and returns false.
func (y *symbols) spellBytes(dst []kv.Token, whole string) ([]kv.Token, bool) {
	for i := range len(whole) {
		if y.bytes[whole[i]] == noToken {
			return dst, false
		}
	}
	for i := range len(whole) {
		dst = append(dst, y.bytes[whole[i]])
	}
	return dst, true
}
