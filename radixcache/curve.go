package radixcache

import (
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/internal/radixcache/missratio"
	"github.com/coppice-llm/coppice/kv"
)

// DefaultCurveSamples is a [Config.CurveSamples] that suits most: 2 MB of memory, and
// less than a point of error on the traces tried.
const DefaultCurveSamples = missratio.DefaultSamples

// curve is the live miss-ratio curve. It observes the tokens of each request as the tree
// sees them, but knows neither pages nor nodes: evictions do not change it.
type curve struct {
	live    *missratio.Curve // nil without a curve
	scratch []kv.Token       // scratch memory for keys with media or public tokens
}

// newCurve returns a curve, or none for 0 samples. It panics for numbers that
// [Config.Validate] refuses.
func newCurve(samples, pageTokens int) curve {
	if samples == 0 {
		return curve{}
	}
	live, err := missratio.New(missratio.Config{Samples: samples, PageTokens: pageTokens})
	if err != nil {
		panic(fmt.Sprintf("radixcache: CurveSamples %d, PageTokens %d: %v", samples, pageTokens, err))
	}
	return curve{live: live}
}

// reset forgets all requests.
func (cv *curve) reset() {
	if cv.live != nil {
		cv.live.Reset()
	}
}

// Observe counts a request in the curve. Call it once per request, when it has ended,
// with all its tokens, prompt and generated. Matches, inserts and evictions make no
// difference. [Cache.Insert] observes its key itself, as a call without a handle is a
// whole request; [Cache.Extend] does not, as it is called many times for one request.
// Without a curve Observe does nothing.
//
// As in the tree, a medium is its hash, a span that does not fit the tokens cuts the key
// short, and the tokens after the public ones are shared with keys of the same Salt only.
// Cost: a hash of the tokens, some two microseconds for 3,500; a copy if the key has
// media or public tokens.
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

// HitRates appends to dst, for each capacity in tokens, the hit rate by tokens that an
// LRU cache of this size would have had, in [0, 1], on the requests observed since New or
// the last [Cache.Flush]. It ignores the cache's own size, policy, quotas and TTL. Use it
// to decide whether more memory would pay: a rate of 0.6 at the present capacity and 0.8
// at twice that means that a fifth of all prompt tokens would not be computed again.
//
// Capacities of 0 and less have rate 0, those beyond 1<<26 that of 1<<26, and all have 0
// before the first request. Without a curve (Config.CurveSamples 0) dst is returned
// unchanged. Cost: a pass over at most 5,000 buckets for each capacity.
func (c *Cache) HitRates(capacityTokens []int, dst []float64) []float64 {
	if c.curve.live == nil {
		return dst
	}
	return c.curve.live.Rates(capacityTokens, dst)
}

// withMedia returns a key's tokens with placeholders mixed with their medium's hash, up
// to the first span that does not fit. The result is scratch memory. The first token of a
// span is inverted too, so that two equal images in a row differ from one long image.
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

// withSalt returns tokens with those from index public on mixed with the salt's hash, so
// that only keys of equal salts share them. The result is scratch memory, and tokens may
// be that same memory.
func (cv *curve) withSalt(tokens []kv.Token, public int, salt string) []kv.Token {
	cv.scratch = append(cv.scratch[:0], tokens...)
	veil(cv.scratch[public:], xxh3.HashString(salt))
	return cv.scratch
}

// veil flips the bits of tokens by the two 32-bit halves of hash in turn: equal tokens
// with different hashes become different. A single token shows only half of the hash, but
// the curve compares blocks of several tokens.
func veil(tokens []kv.Token, hash uint64) {
	even, odd := kv.Token(hash), kv.Token(hash>>32)
	for i := range tokens {
		tokens[i] ^= even
		even, odd = odd, even
	}
}
