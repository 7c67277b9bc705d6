package tokenizer

import (
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// encode looks for the added tokens that stand in the text as it came and
// encodes what is between them. s may be nil here and in all that follows.
func (t *Tokenizer) encode(dst []kv.Token, text string, s *scratch) []kv.Token {
	for from := 0; ; {
		a, lo, hi := t.raw.next(text, from, s.plainAfter(from))
		dst = t.encodeSegment(dst, text[from:lo], from == 0, s.plainBetween(from, lo), s)
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

// encodeSegment encodes text between added tokens that are found before normalization.
// first reports whether the caller's text begins with it. plain makes special tokens in
// it plain text: normalization moves their offsets, so none is looked for.
func (t *Tokenizer) encodeSegment(dst []kv.Token, text string, first, plain bool, s *scratch) []kv.Token {
	text = t.normalize(text, s)
	var nowhere []int
	if plain && len(t.normalized.tokens) > 0 {
		for i := range len(text) {
			nowhere = append(nowhere, i)
		}
	}
	for from := 0; ; {
		a, lo, hi := t.normalized.next(text, from, nowhere)
		if t.only {
			dst = t.encodeKnown(dst, text[from:lo], s)
		} else {
			dst = t.cut(dst, 0, text[from:lo], first && from == 0, s)
		}
		if a == nil || s.stops(dst) {
			return dst
		}
		dst = append(dst, a.id)
		from = hi
	}
}

// encodeKnown is cut for the pipelines of which it is all: a splitter that is
// written by hand, and bytes. So are those of most models.
func (t *Tokenizer) encodeKnown(dst []kv.Token, text string, s *scratch) []kv.Token {
	for text != "" && !s.stops(dst) {
		n := t.split.next(text)
		dst = t.encodeWord(dst, text[:n], s)
		text = text[n:]
	}
	return dst
}

// encodePiece encodes what the pre-tokenizer made, cut further where no merge
// can reach across.
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

func (t *Tokenizer) encodeWord(dst []kv.Token, word string, s *scratch) []kv.Token {
	if id, ok := t.whole[word]; ok {
		return append(dst, id)
	}
	if s != nil && s.cache.slots != nil {
		return s.encode(dst, t, word)
	}
	return t.merge(dst, word, s)
}

// nextWord is the length of a run of spaces with what follows up to the next
// one. text must not be empty.
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

// metaspace is how SentencePiece writes a space: U+2581.
const metaspace = "▁"

// safeWords reports whether a piece may be cut before each run of metaspaces: it
// is so if no merge joins something that ends otherwise with something that
// begins with one, if a metaspace is a symbol of its own, if a piece is not
// looked up whole before merging, and if no unknown tokens can fuse across the
// cut. Without that a file that has no pre-tokenizer, as SentencePiece's, would
// have whole texts merged as one piece.
func (t *Tokenizer) safeWords(m *modelJSON) string {
	if t.byteLevel || m.IgnoreMerges || !t.complete() || !hasKey(m.Vocab, metaspace) {
		return ""
	}
	for _, names := range m.Merges {
		if !strings.HasSuffix(names[0], metaspace) && strings.HasPrefix(names[1], metaspace) {
			return ""
		}
	}
	return metaspace
}
