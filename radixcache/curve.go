package radixcache

import (
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/internal/radixcache/missratio"
	"github.com/coppice-llm/coppice/kv"
)

// DefaultCurveSamples is a [Config.CurveSamples] that serves most: two megabytes
// of memory, and less than a point of error in what was tried.
const DefaultCurveSamples = missratio.DefaultSamples

// curve is the live miss-ratio curve. It hears of each request as the tree sees
// it, but knows neither pages nor nodes.
type curve struct {
	live    *missratio.Curve // nil: none
	scratch []kv.Token       // a key with media or private tokens
}

// newCurve panics at numbers that [Config.Validate] refuses.
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

func (cv *curve) reset() {
	if cv.live != nil {
		cv.live.Reset()
	}
}

// Observe counts a request in the curve: call it once for each, when it has
// ended, with all its tokens, those that it generated too. What was matched,
// inserted or evicted makes no difference. [Cache.Insert] observes its key by
// itself, as it is called without a handle, for whole requests; [Cache.Extend]
// does not, as it is called many times for one. Without a curve nothing happens.
//
// As in the tree, media are what their hashes say, a span that does not fit the
// tokens cuts the key short, and what is behind the public tokens is shared with
// keys of the same Salt only. Cost: a hash of the tokens, some two microseconds
// for 3,500; a copy if the key has media or public tokens.
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

// HitRates appends to dst, for each capacity in tokens, the hit rate by tokens
// that a cache of this size with eviction by LRU would have had, in [0, 1], over
// the requests observed since New or the last [Cache.Flush]. Of the cache's own
// size, policy, quotas and ages it knows nothing. Capacities of 0 and less have
// rate 0, those beyond 1<<26 that of 1<<26, and all 0 before the first request.
// Without a curve, that is with Config.CurveSamples 0, dst comes back as it is.
// Cost: a pass over at most 5,000 buckets for each capacity.
func (c *Cache) HitRates(capacityTokens []int, dst []float64) []float64 {
	if c.curve.live == nil {
		return dst
	}
	return c.curve.live.Rates(capacityTokens, dst)
}

// withMedia is a key's tokens with the media told apart by their content, up to
// the first span that is none. The result is the scratch.
//
// The first token of a span is another than the rest would make it, so that two
// equal images in a row are not one long one.
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

// withSalt is tokens with those from public on such as only equal salts make
// them. The result is the scratch; tokens may be, too.
func (cv *curve) withSalt(tokens []kv.Token, public int, salt string) []kv.Token {
	cv.scratch = append(cv.scratch[:0], tokens...)
	veil(cv.scratch[public:], xxh3.HashString(salt))
	return cv.scratch
}

// veil makes other tokens of tokens, and of equal ones different ones by hash:
// it flips bits by the halves of hash in turn. One token shows half of the hash
// only, but the curve compares blocks of several.
func veil(tokens []kv.Token, hash uint64) {
	even, odd := kv.Token(hash), kv.Token(hash>>32)
	for i := range tokens {
		tokens[i] ^= even
		even, odd = odd, even
	}
}
