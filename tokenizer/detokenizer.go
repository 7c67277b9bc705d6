package tokenizer

import (
	"unicode/utf8"

	"github.com/coppice-llm/coppice/kv"
)

// Decode appends the bytes that tokens stand for to dst. They may end inside a
// rune, or begin so. With skipSpecial special tokens give nothing; tokens that
// the vocabulary lacks never do.
//
// The content of an added token is given as it is. Hugging Face's library runs
// it through the byte alphabet, which makes a difference only for added tokens
// that are not ASCII. Byte tokens (<0xE4>) that are no UTF-8 together give their
// bytes, of which a Detokenizer makes one U+FFFD for each maximal subpart; that
// library gives one for every byte of the run, valid ones included.
func (t *Tokenizer) Decode(dst []byte, tokens []kv.Token, skipSpecial bool) []byte {
	l := leading{strip: t.strip}
	return t.decode(dst, tokens, skipSpecial, &l)
}

func (t *Tokenizer) decode(dst []byte, tokens []kv.Token, skipSpecial bool, l *leading) []byte {
	for _, token := range tokens {
		if int64(token) >= int64(len(t.text)) || skipSpecial && t.special[token] {
			continue
		}
		dst = append(dst, t.spoken(token, l)...)
	}
	return dst
}

// Decoding decodes tokens in parts, as [Tokenizer.Decode] does all at once.
type Decoding struct {
	t    *Tokenizer
	lead leading
}

// NewDecoding begins with a first part.
func (t *Tokenizer) NewDecoding() *Decoding { return &Decoding{t, leading{strip: t.strip}} }

// Append appends the bytes that the next tokens stand for, special ones included.
func (d *Decoding) Append(dst []byte, tokens []kv.Token) []byte {
	return d.t.decode(dst, tokens, false, &d.lead)
}

// leading has the characters that must still be dropped at the beginning of a text.
type leading struct {
	begun bool
	strip int
}

// spoken returns the text of a known token at the place that l describes.
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

// Detokenizer decodes a stream token by token, so that whatever it hands out is
// valid UTF-8. It keeps at most three bytes, the beginning of a rune that the
// next token may complete. Bytes that belong to no rune become U+FFFD, one for
// each maximal subpart of a rune (The Unicode Standard, section 3.9,
// "U+FFFD Substitution of Maximal Subparts"), as soon as that is known.
//
// It belongs to one stream. Methods must not be called concurrently.
type Detokenizer struct {
	t    *Tokenizer
	tail [utf8.UTFMax]byte // tail[:n] begins a rune and does not complete it
	n    int

	begin leading // what a stream begins with
	lead  leading
}

// NewDetokenizer starts a stream that gives what Decode gives for all its tokens.
func (t *Tokenizer) NewDetokenizer() *Detokenizer { return t.detokenizer(leading{strip: t.strip}) }

// NewContinuation starts a stream whose text goes on after other text, as what
// is generated after a prompt: the space that files in SentencePiece's way have
// before the first word of a text is kept. With byte-level files it is the same
// as NewDetokenizer.
func (t *Tokenizer) NewContinuation() *Detokenizer { return t.detokenizer(leading{begun: true}) }

func (t *Tokenizer) detokenizer(begin leading) *Detokenizer {
	return &Detokenizer{t: t, begin: begin, lead: begin}
}

const replacement = "\uFFFD"

// Next appends to dst the text that is certain once token has come. Special and
// unknown tokens give nothing and do not end a rune. It does not allocate but
// for dst.
func (d *Detokenizer) Next(dst []byte, token kv.Token) []byte {
	if int64(token) >= int64(len(d.t.text)) || d.t.special[token] {
		return dst
	}
	s := d.t.spoken(token, &d.lead)
	for d.n > 0 && s != "" {
		d.tail[d.n] = s[0]
		switch grown := d.tail[:d.n+1]; {
		case !utf8.FullRune(grown):
			d.n++
			s = s[1:]
		case utf8.Valid(grown):
			dst = append(dst, grown...)
			d.n = 0
			s = s[1:]
		default: // s[0] is no part of the rune, which will never be complete
			dst = append(dst, replacement...)
			d.n = 0
		}
	}
	return d.body(dst, s)
}

// body appends what s holds in whole runes and keeps the rest as the tail,
// which is empty before.
func (d *Detokenizer) body(dst []byte, s string) []byte {
	for s != "" {
		r, n := utf8.DecodeRuneInString(s)
		if r != utf8.RuneError || n > 1 {
			dst = append(dst, s[:n]...)
			s = s[n:]
			continue
		}
		if !utf8.FullRuneInString(s) {
			d.n = copy(d.tail[:], s)
			return dst
		}
		dst = append(dst, replacement...)
		s = s[subpart(s):]
	}
	return dst
}

// subpart is the length of the longest beginning of s that is also the
// beginning of some rune, at least 1. s begins with no rune.
func subpart(s string) int {
	n := 1
	for n < len(s) && !utf8.FullRuneInString(s[:n+1]) {
		n++
	}
	return n
}

// Flush ends the stream: a rune left incomplete becomes U+FFFD. The detokenizer
// may then be used for another stream.
func (d *Detokenizer) Flush(dst []byte) []byte {
	if d.n > 0 {
		dst = append(dst, replacement...)
		d.n = 0
	}
	d.lead = d.begin
	return dst
}
