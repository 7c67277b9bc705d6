package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/radixcache"
)

// RadixConfig sizes a replay of a trace on a radix cache. The zero value serves.
type RadixConfig struct {
	PageTokens     int               // tokens per page. Default radixcache's
	BlockTokens    int               // tokens per event block, a multiple of PageTokens. Default radixcache's; events are off
	Policy         radixcache.Policy // of eviction
	Trim           bool              // evict the last pages of a leaf before the whole of it, and join what was split
	CapacityTokens int               `min:"0"`             // what the cache may hold, in whole pages. Default 0: all
	Passes         int               `default:"5" min:"1"` // timed replays, whose medians are reported. Default 5
}

// cache is the configuration of the cache under test.
func (c RadixConfig) cache() radixcache.Config {
	return radixcache.Config{PageTokens: c.PageTokens, BlockTokens: c.BlockTokens, Policy: c.Policy, WholeLeaves: !c.Trim}.WithDefaults()
}

// validate reports all faults at once, by field and value.
func (c RadixConfig) validate(t *Trace) error {
	if err := errors.Join(c.cache().Validate(), bounds.Check("bench", c.withDefaults())); err != nil {
		return err
	}
	if t.Requests() == 0 {
		return errors.New("bench: the trace has no requests, nothing can be measured")
	}
	if t.tokens > math.MaxInt32 {
		return fmt.Errorf("bench: the trace has %d tokens, at most %d can have pages: take a shorter one", t.tokens, math.MaxInt32)
	}
	page := c.cache().PageTokens
	if most := t.longest / page; c.CapacityTokens > 0 && c.CapacityTokens/page < most {
		return fmt.Errorf("bench: CapacityTokens is %d, that is %d pages of %d tokens, but the longest request takes %d pages: raise it to %d at least",
			c.CapacityTokens, c.CapacityTokens/page, page, most, most*page)
	}
	return nil
}

// RadixSummary is what a replay came to and what it cost. The counts are the
// same in every run; the times are those of one core of this machine.
type RadixSummary struct {
	Requests        int     `json:"requests"`
	Tokens          int     `json:"tokens"`         // of all requests
	MatchedTokens   int     `json:"matched_tokens"` // whole pages from the root, not capped at one token less than the request
	MatchedFNV      string  `json:"matched_fnv"`    // of the matched length of each request, 16 hex digits; see foldFNV
	PartialTokens   int     `json:"partial_tokens"` // shared with some page beyond the whole ones
	Nodes           int     `json:"nodes"`          // at the end, without the root
	Leaves          int     `json:"leaves"`
	CachedTokens    int     `json:"cached_tokens"` // at the end
	EvictedTokens   int     `json:"evicted_tokens"`
	EvictCalls      int     `json:"evict_calls"`
	MatchPerToken   float64 `json:"match_ns_per_token"` // matched tokens; 0 if there are none, and noise if they are few
	MatchPerReq     float64 `json:"match_ns_per_request"`
	PagesPerReq     float64 `json:"pages_ns_per_request"`  // reading the matched pages' ids
	InsertPerReq    float64 `json:"insert_ns_per_request"` // with Pin and Unpin
	EvictPerCall    float64 `json:"evict_ns_per_call"`
	MemcmpPerToken  float64 `json:"memcmp_ns_per_token"` // see flatCopy
	MatchOverMemcmp float64 `json:"match_over_memcmp"`
	BytesPerToken   float64 `json:"bytes_per_cached_token"` // growth of the Go heap by the whole cache
	HitRate         float64 `json:"hit_rate"`
	IdealHitRate    float64 `json:"ideal_hit_rate"` // of a cache without limit and with pages of one token
}

// Steps is how often a [PlayRadix] of this configuration calls progress.
func (c RadixConfig) Steps() int { return 3 + 2*c.withDefaults().Passes }

func (c RadixConfig) withDefaults() RadixConfig { return bounds.Fill(c) }

// PlayRadix replays a trace: each request is matched, gets room by eviction
// with what it matched pinned, and is inserted, whole pages only. progress, if
// not nil, is called after each replay. Bad sizes and the end of ctx are errors.
//
// Every replay starts with an empty cache. The first counts, and measures
// memory with nothing else going on; one more runs with an ideal cache, one
// lays out the flat copy. Then timed replays and memcmp passes alternate. A
// figure is the median over the passes of its sum over all requests, which the
// clock does not distort: see stopwatch.
func PlayRadix(ctx context.Context, t *Trace, cfg RadixConfig, progress func()) (*RadixSummary, error) {
	if err := cfg.validate(t); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if progress == nil {
		progress = func() {}
	}
	p := &radixPlay{ctx: ctx, trace: t, cfg: cfg, progress: progress}
	s, err := p.count()
	if err != nil {
		return nil, err
	}
	ideal, err := p.replay(RadixConfig{PageTokens: 1}, nil)
	if err != nil {
		return nil, err
	}
	if t.tokens > 0 {
		s.HitRate = float64(s.MatchedTokens) / float64(t.tokens)
		s.IdealHitRate = float64(ideal.matched) / float64(t.tokens)
	}
	flat, err := p.layOut()
	if err != nil {
		return nil, err
	}
	return s, p.time(s, flat)
}

// radixPlay is the state of one PlayRadix.
type radixPlay struct {
	ctx      context.Context
	trace    *Trace
	cfg      RadixConfig
	progress func()
	fnv      uint64 // of the first replay; all others must agree
}

// replay runs the whole trace on an empty cache. look, if not nil, sees each
// step between its Insert and the next Match.
func (p *radixPlay) replay(cfg RadixConfig, look func(i int, r *replayer)) (*replayer, error) {
	r, err := newReplayer(p.trace, cfg)
	if err != nil {
		return nil, err
	}
	if err := p.run(r, look); err != nil {
		return nil, err
	}
	p.progress()
	return r, nil
}

func (p *radixPlay) run(r *replayer, look func(i int, r *replayer)) error {
	for i, request := range p.trace.requests {
		if i%64 == 0 && p.ctx.Err() != nil {
			return context.Cause(p.ctx)
		}
		if err := r.step(request); err != nil {
			return fmt.Errorf("bench: request %d of %d tokens: %w", i, len(request), err)
		}
		if look != nil {
			look(i, r)
		}
	}
	return nil
}

// count is the first replay: what it comes to and how much memory it takes.
func (p *radixPlay) count() (*RadixSummary, error) {
	r, err := newReplayer(p.trace, p.cfg)
	if err != nil {
		return nil, err
	}
	own := heapBytes() // with the replayer, its scratch and an empty cache
	if err := p.run(r, nil); err != nil {
		return nil, err
	}
	bytes := heapBytes() - own
	runtime.KeepAlive(r)
	p.progress()
	st := r.cache.Stats()
	evicted, _ := st.Evicted()
	p.fnv = r.fnv
	s := &RadixSummary{
		Requests: p.trace.Requests(), Tokens: p.trace.Tokens(),
		MatchedTokens: r.matched, MatchedFNV: fmt.Sprintf("%016x", r.fnv), PartialTokens: r.partial,
		Nodes: st.Nodes, Leaves: st.Leaves, CachedTokens: st.Tokens,
		EvictedTokens: int(evicted), EvictCalls: r.evict.laps,
	}
	if st.Tokens > 0 {
		s.BytesPerToken = float64(bytes) / float64(st.Tokens)
	}
	return s, nil
}

// time fills in the times.
func (p *radixPlay) time(s *RadixSummary, flat *flatCopy) error {
	var match, gather, insert, evict, memcmp []time.Duration
	for range p.cfg.Passes {
		clock := calibrate()
		runtime.GC()
		r, err := p.replay(p.cfg, nil)
		if err != nil {
			return err
		}
		if r.fnv != p.fnv {
			panic(fmt.Sprintf("bench: replays of one trace differ: FNV %016x, then %016x", p.fnv, r.fnv))
		}
		match = append(match, r.match.total(clock))
		gather = append(gather, r.gather.total(clock))
		insert = append(insert, r.insert.total(clock))
		evict = append(evict, r.evict.total(clock))
		r = nil // let go of its cache
		runtime.GC()
		watch, err := flat.compare(p.ctx)
		if err != nil {
			return err
		}
		memcmp = append(memcmp, watch.total(clock))
		p.progress()
	}
	per := func(sums []time.Duration, n int) float64 {
		slices.Sort(sums)
		if n == 0 {
			return 0
		}
		return float64(sums[len(sums)/2]) / float64(n)
	}
	s.MatchPerReq = per(match, s.Requests)
	s.MatchPerToken = per(match, s.MatchedTokens)
	s.PagesPerReq = per(gather, s.Requests)
	s.InsertPerReq = per(insert, s.Requests)
	s.EvictPerCall = per(evict, s.EvictCalls)
	s.MemcmpPerToken = per(memcmp, s.MatchedTokens)
	if s.MemcmpPerToken > 0 {
		s.MatchOverMemcmp = s.MatchPerToken / s.MemcmpPerToken
	}
	return nil
}

// heapBytes is what lives on the Go heap.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC() // the first one may leave sweeping and finalizers to the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
