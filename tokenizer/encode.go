package tokenizer

import (
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// encode finds the added tokens in the raw text, encodes the segments between them and appends
// all tokens to dst. s has the buffers and the bounds.
func (t *Tokenizer) encode(dst []kv.Token, text string, s *scratch) []kv.Token {
	for from := 0; ; {
		a, lo, hi := t.raw.next(text, from, s.plainAfter(from), s.literal)
		dst = t.encodeSegment(dst, text[from:lo], from == 0 && !s.inside, s.plainBetween(from, lo), s)
		s.inside = false
		if a == nil || s.stops(dst) {
			return dst
		}
		dst = append(dst, a.id)
		from = hi
	}
}

func (t *Tokenizer) encodePrompt(dst []kv.Token, text string, s *scratch) []kv.Token {
	dst = append(dst, t.prefix...)
	dst = t.encode(dst, text, s)
	if s.stops(dst) {
		return dst
	}
	return append(dst, t.suffix...)
}

// encodeSegment normalizes text, finds the added tokens that are matched after normalization, and
// encodes the text between them. text lies between two added tokens that were matched before
// normalization. first is set if text is the beginning of the caller's text. plain is set if an
// offset of Options.Plain is in text: normalization moves offsets, so no special token is then
// matched anywhere in text. So it is with Options.Literal.
func (t *Tokenizer) encodeSegment(dst []kv.Token, text string, first, plain bool, s *scratch) []kv.Token {
	text = t.normalize(text, s)
	for from := 0; ; {
		a, lo, hi := t.normalized.next(text, from, nil, plain)
		dst = t.cut(dst, 0, text[from:lo], first && from == 0, s)
		if a == nil || s.stops(dst) {
			return dst
		}
		dst = append(dst, a.id)
		from = hi
	}
}

// encodePiece encodes a piece that the pre-tokenizer made. If t.words is set, it first splits the
// piece before each run of t.words: no merge can cross these places.
func (t *Tokenizer) encodePiece(dst []kv.Token, piece string, s *scratch) []kv.Token {
	if t.words == "" {
		return t.encodeWord(dst, piece, s)
	}
	for piece != "" && !s.stops(dst) {
		n := nextWord(piece, t.words)
		dst = t.encodeWord(dst, piece[:n], s)
		piece = piece[n:]
	}
	return dst
}

// encodeWord appends the tokens of word to dst: a single token if t.whole has one, else those
// that merging yields, through the cache if s has one.
func (t *Tokenizer) encodeWord(dst []kv.Token, word string, s *scratch) []kv.Token {
	if id, ok := t.whole[word]; ok {
		return append(dst, id)
	}
	if s.cache.slots != nil {
		return s.encode(dst, t, word)
	}
	return t.merge(dst, word, s)
}

// nextWord returns the length of the first word of text, which must not be empty: the occurrences
// of space that text begins with, if any, and the text up to the next occurrence.
func nextWord(text, space string) int {
	n := 0
	for strings.HasPrefix(text[n:], space) {
		n += len(space)
	}
	if end := strings.Index(text[n:], space); end >= 0 {
		return n + end
	}
	return len(text)
}

// metaspace is SentencePiece's character for a space, U+2581.
const metaspace, metaspaceRune = "▁", '▁'

// safeWords returns metaspace if a piece may be split before each run of metaspaces, or else
// "". Splitting is safe if no merge joins a left part that ends in another character with a
// right part that begins with a metaspace, if a metaspace is a symbol of its own, if pieces are
// not looked up whole before merging, and if no unknown tokens can fuse across the split.
// Without the split, files that have no pre-tokenizer, such as SentencePiece's, would merge whole
// texts as one piece.
func (t *Tokenizer) safeWords(m *modelJSON) string {
	if t.byteLevel || m.IgnoreMerges || !t.complete() || m.Vocab.token(metaspace) == noToken {
		return ""
	}
	for _, names := range m.Merges {
		if !strings.HasSuffix(names[0], metaspace) && strings.HasPrefix(names[1], metaspace) {
			return ""
		}
	}
	return metaspace
}
