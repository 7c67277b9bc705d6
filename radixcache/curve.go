package radixcache

import (
	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/kv"
)

// Curve estimates the hit rates of caches of other sizes from the tokens of requests. It stands behind an interface so that a
// program links package missratio only if it turns the estimate on.
type Curve interface {
	// Begin prepares an empty curve for a cache with pages of pageTokens tokens. A curve belongs to one cache.
	Begin(pageTokens int) error
	// Access counts a request. The slice is the caller's again after the call.
	Access(ns kv.Namespace, tokens []kv.Token)
	// Rates returns dst with the hit rate in [0, 1] of each capacity, in tokens, appended.
	Rates(capacityTokens []int, dst []float64) []float64
	// Reset forgets all requests.
	Reset()
}

// curve is the miss-ratio curve of the requests so far. It gets the tokens of each request
// in the form in which the tree holds them, but does not see pages or nodes: evictions do
// not change it.
type curve struct {
	live    Curve      // nil without a curve
	scratch []kv.Token // scratch memory for keys with media or public tokens
}

// Observe counts a request in the estimate of [Cache.HitRates]. Call it once per request,
// when the request has ended, with all its tokens, prompt and output. [Cache.Insert] calls
// it for its key, because an Insert is a whole request; [Cache.Extend] does not, because
// there are many calls of it for one request. Without Config.Curve Observe does
// nothing.
//
// As in the tree, a medium counts by its hash, a key ends before the first medium that does
// not fit its tokens, and keys of different Salts share only public tokens. Cost: hashing
// the tokens, some two microseconds for 3,500; a copy if the key has media or public tokens.
func (c *Cache) Observe(key Key) {
	if c.curve.live == nil {
		return
	}
	tokens := key.Tokens
	if len(key.Media) > 0 {
		tokens = c.curve.withMedia(&key)
	}
	r := route{public: c.public(&key), ns: &key.Namespace}
	if r.public > 0 && r.public < len(tokens) {
		tokens = c.curve.withSalt(tokens, r.public, key.Namespace.Salt)
	}
	c.curve.live.Access(r.outer(), tokens)
}

// HitRates returns dst with a hit rate in [0, 1] appended for each capacity in tokens: the
// share of all tokens of the requests observed since New or the last [Cache.Flush] that an
// LRU cache of that capacity would have found. It ignores the cache's own size, policy,
// quotas and TTL. Use it to decide whether more memory would pay: with a rate of 0.6 at the
// present capacity and 0.8 at twice that, doubling the memory would save computing a fifth
// of all tokens.
//
// The rate is 0 for capacities of 0 and less, and for all before the first request. For
// capacities above 1<<26 it is that of 1<<26. Without Config.Curve HitRates returns
// dst unchanged. Cost: a pass over at most 5,000 buckets for each capacity.
func (c *Cache) HitRates(capacityTokens []int, dst []float64) []float64 {
	if c.curve.live == nil {
		return dst
	}
	return c.curve.live.Rates(capacityTokens, dst)
}

// withMedia returns a key's tokens, with each medium's placeholders combined with its hash
// by xor, up to the first medium that does not fit the tokens. The result is scratch
// memory. The first token of a medium is inverted too, so that two equal images in a row
// differ from one long image.
func (cv *curve) withMedia(key *Key) []kv.Token {
	cv.scratch = append(cv.scratch[:0], key.Tokens...)
	end := 0
	for _, m := range key.Media {
		if m.At < end || m.Tokens < 1 || m.Tokens > len(key.Tokens)-m.At {
			return cv.scratch[:min(max(m.At, 0), len(key.Tokens))]
		}
		span := cv.scratch[m.At : m.At+m.Tokens]
		veil(span, m.Hash)
		span[0] = ^span[0]
		end = m.At + m.Tokens
	}
	return cv.scratch
}

// withSalt returns a copy of tokens in which those from index public on are combined with
// the salt's hash by xor, so that only keys of equal salts share them. The result is
// scratch memory; the argument tokens may be that same memory.
func (cv *curve) withSalt(tokens []kv.Token, public int, salt string) []kv.Token {
	cv.scratch = append(cv.scratch[:0], tokens...)
	veil(cv.scratch[public:], xxh3.HashString(salt))
	return cv.scratch
}

// veil combines tokens, in place, with the two 32-bit halves of hash in turn by xor, so that
// equal tokens with different hashes become different. A single token depends on only half
// of the hash, but the curve compares blocks of several tokens.
func veil(tokens []kv.Token, hash uint64) {
	even, odd := kv.Token(hash), kv.Token(hash>>32)
	for i := range tokens {
		tokens[i] ^= even
		even, odd = odd, even
	}
}
