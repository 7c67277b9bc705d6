package prompt

import (
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
)

// A text is encoded in segments of at least segmentBytes, except the last. Each segment after
// the first begins with a special token; see [tokenizer.Cuts]. The end of a segment depends only on the text
// before it, so texts with a common prefix share all its segments but the last. Segments shorter
// than cachedBytes are not cached: encoding them is faster than a lookup.
//
// An encoder is discarded after a segment longer than encoderBytes, because it keeps 40 bytes of
// memory per byte of its longest piece.
const (
	segmentBytes = 256
	cachedBytes  = 64
	encoderBytes = 256 << 10
)

// encoding is the state of encoding one text. It gets an encoder when it first needs one.
type encoding struct {
	*Reader
	encoder *tokenizer.Encoder
	large   bool
	most    int   // most tokens wanted
	plain   []int // as in tokenizer.Options
	err     error // why the text was not encoded to its end
}

// end returns the encoder to Reader.encoders, unless the encoder has grown too large or enough
// are there.
func (e *encoding) end() {
	if e.encoder == nil || e.large {
		return
	}
	select {
	case e.encoders <- e.encoder:
	default:
	}
}

// tokens appends the tokens of text to dst, encoded without the cache. If whole is true, the
// tokens that the tokenizer adds before and after a prompt are included. An error goes to e.err.
func (e *encoding) tokens(dst []kv.Token, text string, whole bool) []kv.Token {
	if e.encoder == nil {
		select {
		case e.encoder = <-e.encoders:
		default:
			e.encoder = e.cfg.Tokenizer.NewEncoder()
		}
	}
	e.large = e.large || len(text) > encoderBytes
	dst, err := e.encoder.EncodeWith(dst, text, tokenizer.Options{Prompt: whole, MaxTokens: max(e.most-len(dst), 1), Plain: e.plain})
	if err != nil {
		e.err = err
	}
	return dst
}

// encode appends the tokens of text to dst, segment by segment. If whole is true, the tokens that
// the tokenizer adds before and after a prompt are included. It stops after more than e.most
// tokens. An error goes to e.err.
func (e *encoding) encode(dst []kv.Token, text string, whole bool) []kv.Token {
	if e.cache == nil || len(e.plain) > 0 { // a text with plain offsets is rare, and can't be cut
		return e.tokens(dst, text, whole)
	}
	before, after := e.cfg.Tokenizer.Around()
	if whole {
		dst = append(dst, before...)
	}
	for lo := 0; lo < len(text) && len(dst) <= e.most && e.err == nil; {
		hi := e.cuts.Next(text, min(lo+segmentBytes, len(text)))
		dst = e.segment(dst, text[lo:hi])
		lo = hi
	}
	if whole && len(dst) <= e.most && e.err == nil {
		dst = append(dst, after...)
	}
	return dst
}

// segment appends the tokens of one segment to dst. If the segment is long enough to be cached,
// it uses the cache.
func (e *encoding) segment(dst []kv.Token, text string) []kv.Token {
	if len(text) < cachedBytes {
		return e.tokens(dst, text, false)
	}
	hash := e.cache.hash(text)
	if tokens, ok := e.cache.get(hash, text); ok {
		return append(dst, tokens...)
	}
	from := len(dst)
	dst = e.tokens(dst, text, false)
	if e.err == nil {
		e.cache.put(hash, text, dst[from:])
	}
	return dst
}
