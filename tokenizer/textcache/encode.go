package textcache

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
)

// A part ends before an added token if it has tokenBytes or more, and at any place where text
// certainly splits if it has pieceBytes or more. Parts shorter than keptBytes are not kept: encoding
// them takes no longer than a lookup.
//
// The last part of a text has no such end, so up to pieceBytes of a turn are encoded again with the
// next one: at 20 MB/s that takes 0.1 ms. A lookup takes 0.3 µs, as long as encoding 6 bytes.
const (
	tokenBytes = 256
	pieceBytes = 2048
	keptBytes  = 64
)

// Cache has the tokens of parts of texts, of one tokenizer. A nil Cache keeps nothing.
type Cache struct {
	store
	tok  *tokenizer.Tokenizer
	once sync.Once
	cuts *tokenizer.Cuts // made for the first text: it takes a few milliseconds

	links           atomic.Uint64 // the number of the last one
	reused, encoded atomic.Uint64 // tokens
}

// New returns a Cache of at most that many bytes, or nil if bytes is below 1 or tok is nil.
func New(tok *tokenizer.Tokenizer, bytes int) *Cache {
	if tok == nil || bytes < 1 {
		return nil
	}
	return &Cache{tok: tok, store: newStore(bytes)}
}

// Encode is e.EncodeWith, where e is an Encoder of the Cache's tokenizer, which has the same result
// and takes longer for parts of text that owner has encoded before. After ErrTooLong, the tokens are
// at most one more than o.MaxTokens or those of EncodeWith. o.Inside and o.Steps must not be set.
func (c *Cache) Encode(dst []kv.Token, e *tokenizer.Encoder, owner, text string, o tokenizer.Options) ([]kv.Token, error) {
	return c.EncodeBlocks(dst, e, owner, text, o, nil)
}

// EncodeBlocks is Encode, and appends to b, unless nil, the hashes of the full blocks of the tokens that it
// returns. dst must be empty then, and b without hashes. The hashes of texts that owner has encoded before
// take as little as their tokens.
func (c *Cache) EncodeBlocks(dst []kv.Token, e *tokenizer.Encoder, owner, text string, o tokenizer.Options, b *Blocks) ([]kv.Token, error) {
	if c == nil || o.Literal || len(text) < keptBytes {
		dst, err := e.EncodeWith(dst, text, o)
		if b != nil {
			s := b.shape(o.Prompt)
			b.extend(&s, dst)
		}
		return dst, err
	}
	c.once.Do(func() { c.cuts = c.tok.NewCuts() })
	steps := tokenizer.Allowance(len(text))
	w := walk{of: c, e: e, owner: owner, o: o, steps: steps, most: math.MaxInt, seed: c.ownerSeed(owner), blocks: b}
	if b != nil {
		w.shape = b.shape(o.Prompt)
	}
	if o.MaxTokens > 0 {
		w.most = len(dst) + o.MaxTokens
	}
	w.o.Prompt, w.o.Plain = false, nil
	dst, err := w.encode(dst, text, o.Prompt, o.Plain)
	w.follow(nil, dst)
	c.reused.Add(uint64(w.reused))
	c.encoded.Add(uint64(w.encoded))
	return dst, err
}

// walk is the encoding of one text.
type walk struct {
	of              *Cache
	e               *tokenizer.Encoder
	owner           string
	seed            uint64
	o               tokenizer.Options // of parts
	most            int               // tokens that dst may have
	steps           int               // left for regular expressions, as for the whole text
	reused, encoded int               // tokens

	blocks *Blocks // nil: no hashes are wanted
	shape  shape   // of blocks
	at     uint64  // the link of the part before, unlinked if it has none
}

func (w *walk) encode(dst []kv.Token, text string, prompt bool, plain []int) (_ []kv.Token, err error) {
	before, after := w.of.tok.Around()
	if prompt {
		dst = append(dst, before...)
	}
	most := w.o.MaxTokens
	for lo := 0; lo < len(text) && err == nil; {
		hi := w.end(text, lo, plain)
		n := sort.SearchInts(plain, hi)
		dst, err = w.part(dst, text[lo:hi], lo, plain[:n])
		lo, plain = hi, plain[n:]
	}
	if prompt && err == nil {
		dst = append(dst, after...)
	}
	switch {
	case errors.Is(err, tokenizer.ErrTooLong), err == nil && len(dst) > w.most:
		err = fmt.Errorf("%w: over %d", tokenizer.ErrTooLong, most)
	case err == nil && w.steps <= 0:
		err = tokenizer.ErrTooHard
	}
	return dst, err
}

// end returns the end of the part of text that begins at lo. It depends only on text up to the end.
func (w *walk) end(text string, lo int, plain []int) int {
	far := min(lo+pieceBytes, len(text))
	if hi := w.of.cuts.Next(text, min(lo+tokenBytes, far), far, plain); hi < far {
		return hi
	}
	return w.of.cuts.Border(text, far, plain)
}

// part appends the tokens of the part of a text that begins at lo. plain has the offsets of
// Options.Plain in the part, as offsets in the text.
func (w *walk) part(dst []kv.Token, text string, lo int, plain []int) ([]kv.Token, error) {
	w.o.Inside, w.o.Plain = lo > 0, nil
	if len(plain) > 0 {
		w.o.Plain = make([]int, len(plain))
		for i, at := range plain {
			w.o.Plain[i] = at - lo
		}
	}
	if len(text) < keptBytes {
		w.at = unlinked
		return w.fresh(dst, text)
	}
	k := key{owner: w.owner, text: text, inside: w.o.Inside, plain: w.o.Plain, hash: xxh3.HashStringSeed(text, w.seed)}
	if !k.inside { // the same text may also be inside another one
		k.hash = ^k.hash
	}
	if found := w.of.get(&k); found != nil {
		tokens := found.tokens
		w.steps -= found.steps
		if w.most < math.MaxInt && len(tokens) > w.most-len(dst) {
			tokens, found = tokens[:max(w.most-len(dst), 0)+1], nil
		}
		w.reused += len(tokens)
		dst = append(dst, tokens...)
		w.follow(found, dst)
		return dst, w.stops(dst)
	}
	from, steps := len(dst), w.steps
	dst, err := w.fresh(dst, text)
	if err == nil {
		w.follow(w.of.put(k, dst[from:], steps-w.steps), dst)
		err = w.stops(dst)
	}
	return dst, err
}

// fresh encodes a part.
func (w *walk) fresh(dst []kv.Token, text string) ([]kv.Token, error) {
	if w.most < math.MaxInt { // at least 1: 0 sets no bound
		w.o.MaxTokens = max(w.most-len(dst), 1)
	}
	from := len(dst)
	w.o.Steps = w.steps
	dst, err := w.e.EncodeWith(dst, text, w.o)
	w.steps = w.e.StepsLeft()
	w.encoded += len(dst) - from
	return dst, err
}

// stops returns an error if no more parts may follow.
func (w *walk) stops(dst []kv.Token) error {
	switch {
	case len(dst) > w.most:
		return tokenizer.ErrTooLong
	case w.steps <= 0:
		return tokenizer.ErrTooHard
	}
	return nil
}

// ownerSeed returns the seed of the hashes of an owner's parts.
func (c *Cache) ownerSeed(owner string) uint64 { return xxh3.HashStringSeed(owner, c.seed) }
