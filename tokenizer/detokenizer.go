package tokenizer

import (
	"unicode/utf8"

	"github.com/coppice-llm/coppice/kv"
)

// Decode appends the bytes of tokens to dst. They may begin or end inside a rune. With
// skipSpecial special tokens yield nothing; ids that the vocabulary lacks never yield anything.
//
// Hugging Face's library differs in two points. It passes the content of an added token through
// the byte alphabet, which changes only content that is not ASCII; here an added token yields its
// content. And for a run of byte tokens (<0xE4>) that is not valid UTF-8, it yields one U+FFFD
// for every byte, valid ones included; here the run yields its bytes, and a Detokenizer turns
// them into one U+FFFD per maximal subpart.
func (t *Tokenizer) Decode(dst []byte, tokens []kv.Token, skipSpecial bool) []byte {
	l := leading{strip: t.strip}
	return t.decode(dst, tokens, skipSpecial, &l)
}

// decode is Decode from the state l, which it updates.
func (t *Tokenizer) decode(dst []byte, tokens []kv.Token, skipSpecial bool, l *leading) []byte {
	for _, token := range tokens {
		if int64(token) >= int64(len(t.text)) || skipSpecial && t.special[token] {
			continue
		}
		dst = append(dst, t.spoken(token, l)...)
	}
	return dst
}

// Decoding decodes tokens in parts. The parts together yield the same bytes as one call of
// [Tokenizer.Decode] with all tokens.
type Decoding struct {
	t    *Tokenizer
	lead leading
}

// NewDecoding starts a decoding.
func (t *Tokenizer) NewDecoding() *Decoding { return &Decoding{t, leading{strip: t.strip}} }

// Append appends to dst the bytes of tokens, which follow the tokens of earlier calls. Special
// tokens yield their text.
func (d *Decoding) Append(dst []byte, tokens []kv.Token) []byte {
	return d.t.decode(dst, tokens, false, &d.lead)
}

// leading is the state of decoding at the beginning of a text: begun is set after the first
// token, and strip is how many stripBytes may still be dropped.
type leading struct {
	begun bool
	strip int
}

// spoken returns the text of token in the state l, and updates l. token must be below
// len(t.text).
func (t *Tokenizer) spoken(token kv.Token, l *leading) string {
	s := t.text[token]
	if !l.begun {
		l.begun = true
		if t.first != nil {
			s = t.first[token]
		}
	}
	for l.strip > 0 && s != "" {
		if s[0] != t.stripByte {
			l.strip = 0
			break
		}
		l.strip--
		s = s[1:]
	}
	return s
}

// Detokenizer decodes a stream token by token, so that all text that it returns is valid UTF-8.
// It holds back at most three bytes: the beginning of a rune that the next token may complete.
// Bytes that belong to no rune become U+FFFD, one for each maximal subpart of a rune (The
// Unicode Standard, section 3.9, "U+FFFD Substitution of Maximal Subparts"), as soon as that is
// certain.
//
// It belongs to one stream. Methods must not be called concurrently.
type Detokenizer struct {
	t   *Tokenizer
	buf []byte // buf[:n] is the incomplete beginning of a rune; the rest is scratch memory
	n   int

	begin leading // value of lead at the beginning of a stream
	lead  leading
}

// NewDetokenizer starts a stream that yields the text of Decode for all its tokens.
func (t *Tokenizer) NewDetokenizer() *Detokenizer { return t.detokenizer(leading{strip: t.strip}) }

// NewContinuation starts a stream whose text continues other text, such as the output after a
// prompt: the space that SentencePiece-style files put before the first word of a text is kept.
// With byte-level files it is the same as NewDetokenizer.
func (t *Tokenizer) NewContinuation() *Detokenizer { return t.detokenizer(leading{begun: true}) }

func (t *Tokenizer) detokenizer(begin leading) *Detokenizer {
	return &Detokenizer{t: t, buf: make([]byte, 0, 32), begin: begin, lead: begin}
}

const replacement = "\uFFFD"

// Next decodes token and appends to dst the text that later tokens can't change: complete runes,
// and U+FFFD for bytes that can't become one. Special tokens, and ids that the vocabulary lacks,
// yield nothing and do not end a rune. Next only allocates to grow dst and for a token that is longer
// than those before.
func (d *Detokenizer) Next(dst []byte, token kv.Token) []byte {
	if int64(token) >= int64(len(d.t.text)) || d.t.special[token] {
		return dst
	}
	text := d.t.spoken(token, &d.lead)
	if d.n == 0 && utf8.ValidString(text) {
		return append(dst, text...)
	}
	d.buf = append(d.buf[:d.n], text...)
	d.n = 0
	for s := d.buf; len(s) > 0; {
		r, n := utf8.DecodeRune(s)
		switch {
		case r != utf8.RuneError || n > 1:
			dst = append(dst, s[:n]...)
		case !utf8.FullRune(s):
			d.n = copy(d.buf, s)
			return dst
		default:
			n = subpart(s)
			dst = append(dst, replacement...)
		}
		s = s[n:]
	}
	return dst
}

// subpart returns the length of the longest prefix of s that is also a prefix of some rune, at
// least 1. s must not begin with a complete rune.
func subpart(s []byte) int {
	n := 1
	for n < len(s) && !utf8.FullRune(s[:n+1]) {
		n++
	}
	return n
}

// Flush ends the stream: it appends U+FFFD to dst if a rune is incomplete. The
// detokenizer may then be used for another stream.
func (d *Detokenizer) Flush(dst []byte) []byte {
	if d.n > 0 {
		dst = append(dst, replacement...)
		d.n = 0
	}
	d.lead = d.begin
	return dst
}
