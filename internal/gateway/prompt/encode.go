package prompt

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
)

// A text is encoded in segments of at least segmentBytes, but for the last one, each of
// which but the first begins with a special token; see cuts. Which they are depends on
// what stands before their end alone, so that texts with a common beginning have all
// but the last segment of it in common. Those below cachedBytes are encoded sooner than
// found.
//
// After a segment of over encoderBytes an encoder is given up: it keeps 40 bytes for
// each byte of the longest piece that it had.
const (
	segmentBytes = 256
	cachedBytes  = 64
	encoderBytes = 256 << 10
)

// encoding is one text on its way to tokens. It takes an encoder when it needs one.
type encoding struct {
	*Reader
	encoder *tokenizer.Encoder
	large   bool
	most    int   // tokens that are wanted
	plain   []int // as in tokenizer.Options
	err     error // why not all of the text was encoded
}

// end gives the encoder back.
func (e *encoding) end() {
	if e.encoder == nil || e.large {
		return
	}
	select {
	case e.encoders <- e.encoder:
	default:
	}
}

// tokens appends those of text without looking for it, whole with what stands around a
// prompt.
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

// encode appends the tokens of text to dst, whole with what stands around a prompt. It
// stops where there are more than e.most.
func (e *encoding) encode(dst []kv.Token, text string, whole bool) []kv.Token {
	if whole && !e.known || len(e.plain) > 0 { // such a text is rare, and no place to cut
		return e.tokens(dst, text, whole)
	}
	if whole {
		dst = append(dst, e.before...)
	}
	from := len(dst)
	dst, ok := e.segments(dst, text)
	if !ok {
		e.err = nil
		dst = e.tokens(dst[:from], text, false)
	}
	if whole && len(dst) <= e.most && e.err == nil {
		dst = append(dst, e.after...)
	}
	return dst
}

// segments is false if a segment does not begin with the token that it was cut at, so
// that the text can't be cut there.
func (e *encoding) segments(dst []kv.Token, text string) (_ []kv.Token, ok bool) {
	if e.cache == nil {
		return e.tokens(dst, text, false), true
	}
	for lo := 0; lo < len(text) && len(dst) <= e.most && e.err == nil; {
		hi := e.cuts.next(text, min(lo+segmentBytes, len(text)))
		at := len(dst)
		dst = e.segment(dst, text[lo:hi])
		if lo > 0 && (len(dst) == at || dst[at] != e.cuts.at(text[lo:hi])) {
			return dst, false
		}
		lo = hi
	}
	return dst, true
}

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

// around is what tok puts before and after a prompt; false if it can't be told.
func around(tok *tokenizer.Tokenizer) (before, after []kv.Token, known bool) {
	all := tok.EncodePrompt(nil, "")
	found := -1
	for n := range len(all) + 1 {
		fits := true
		for _, text := range []string{"a", "Zq 7", "\n.", "{"} {
			want := append(tok.Encode(slices.Clone(all[:n]), text), all[n:]...)
			fits = fits && slices.Equal(tok.EncodePrompt(nil, text), want)
		}
		switch {
		case fits && found >= 0:
			return nil, nil, false
		case fits:
			found = n
		}
	}
	if found < 0 {
		return nil, nil, false
	}
	return all[:found:found], all[found:], true
}
