package tokenizer

import (
	"unicode/utf8"

	"github.com/coppice-llm/coppice/kv"
)

// Decode appends the bytes of tokens to dst. They may begin or end inside a rune. With
// skipSpecial special tokens yield nothing; unknown tokens never yield anything.
//
// An added token yields its content. Hugging Face's library runs it through the byte alphabet,
// which only differs for added tokens that are not ASCII. Byte tokens (<0xE4>) that are not
// valid UTF-8 together yield their bytes, which a Detokenizer turns into one U+FFFD per maximal
// subpart; that library yields one for every byte of the run, valid ones included.
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

// Decoding decodes tokens in parts, like [Tokenizer.Decode] does all at once.
type Decoding struct {
	t    *Tokenizer
	lead leading
}

// NewDecoding starts a decoding.
func (t *Tokenizer) NewDecoding() *Decoding { return &Decoding{t, leading{strip: t.strip}} }

// Append appends the bytes of the next tokens, special ones included.
func (d *Decoding) Append(dst []byte, tokens []kv.Token) []byte {
	return d.t.decode(dst, tokens, false, &d.lead)
}

// leading describes what must still be dropped at the beginning of a text.
type leading struct {
	begun bool
	strip int
}

// spoken returns the text of token in the state l. The token must be known.
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
	t    *Tokenizer
	tail [utf8.UTFMax]byte // tail[:n] is the incomplete beginning of a rune
	n    int

	begin leading // state at the beginning of a stream
	lead  leading
}

// NewDetokenizer starts a stream that yields the text of Decode for all its tokens.
func (t *Tokenizer) NewDetokenizer() *Detokenizer { return t.detokenizer(leading{strip: t.strip}) }

// NewContinuation starts a stream whose text continues other text, such as the output after a
// prompt: the space that SentencePiece-style files put before the first word of a text is kept.
// With byte-level files it is the same as NewDetokenizer.
func (t *Tokenizer) NewContinuation() *Detokenizer { return t.detokenizer(leading{begun: true}) }

func (t *Tokenizer) detokenizer(begin leading) *Detokenizer {
	return &Detokenizer{t: t, begin: begin, lead: begin}
}

const replacement = "\uFFFD"

// Next appends to dst the text that is certain after token. Special and unknown tokens yield
// nothing and do not end a rune. It only allocates to grow dst.
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
		default: // s[0] is not part of the rune, which can no longer be completed
			dst = append(dst, replacement...)
			d.n = 0
		}
	}
	return d.body(dst, s)
}

// body appends the complete runes of s and keeps the rest as the tail, which must be empty.
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

// subpart returns the length of the longest prefix of s that is also a prefix of some rune, at
// least 1. s must not begin with a complete rune.
func subpart(s string) int {
	n := 1
	for n < len(s) && !utf8.FullRuneInString(s[:n+1]) {
		n++
	}
	return n
}

// Flush ends the stream: an incomplete rune becomes U+FFFD. The detokenizer may then be used
// for another stream.
func (d *Detokenizer) Flush(dst []byte) []byte {
	if d.n > 0 {
		dst = append(dst, replacement...)
		d.n = 0
	}
	d.lead = d.begin
	return dst
}
