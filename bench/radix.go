package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/radixcache"
)

// RadixConfig sizes a replay of a trace on a radix cache. The zero value works. Its tags state the
// defaults, the bounds, and the flags of coppice bench radix.
type RadixConfig struct {
	PageTokens     int               `default:"16" min:"1" help:"Tokens per page: 1 to 32768."`
	BlockTokens    int               `placeholder:"0" help:"Tokens per event block, a multiple of a page. The events are made and discarded. Default: the cache's own."`
	CapacityTokens int               `placeholder:"0" min:"0" help:"Capacity of the cache, in tokens, rounded down to whole pages. Default: the whole trace fits."`
	Policy         radixcache.Policy `kong:"-"`
	Trim           bool              `help:"Evict page by page from a leaf's end, and join split nodes, as a server does. Default: whole leaves, as for the published checksums."`
	Passes         int               `default:"5" min:"1" help:"Number of timed replays; the report shows medians."`
}

// cache returns the configuration of the cache under test.
func (c RadixConfig) cache() radixcache.Config {
	return radixcache.Config{PageTokens: c.PageTokens, BlockTokens: c.BlockTokens, Policy: c.Policy, WholeLeaves: !c.Trim}.WithDefaults()
}

// validate reports all faults at once, by field and value.
func (c RadixConfig) validate(t *Trace) error {
	if err := errors.Join(c.cache().Validate(), bounds.Check("bench", bounds.Fill(c))); err != nil {
		return err
	}
	if err := t.playable(); err != nil {
		return err
	}
	page := c.cache().PageTokens
	if most := t.longest / page; c.CapacityTokens > 0 && c.CapacityTokens/page < most {
		return fmt.Errorf("bench: CapacityTokens is %d, that is %d pages of %d tokens, but the longest request takes %d pages: raise it to %d at least",
			c.CapacityTokens, c.CapacityTokens/page, page, most, most*page)
	}
	return nil
}

// RadixSummary holds the counts and costs of a replay. The counts are the same in
// every run; the times are of one core of this machine.
type RadixSummary struct {
	Requests        int     `json:"requests" row:"requests|%d"`
	Tokens          int     `json:"tokens" row:"tokens|%d"`                         // of all requests
	MatchedTokens   int     `json:"matched_tokens" row:"matched in whole pages|%d"` // from the root, not capped at one token less than the request
	PartialTokens   int     `json:"partial_tokens" row:"and in part of a page|%d"`  // matched in part of a page after the whole ones
	MatchedFNV      string  `json:"matched_fnv" row:"checksum of the matches|%s"`   // of the matched length of each request, 16 hex digits; see foldFNV
	HitRate         float64 `json:"hit_rate" row:"hit rate|%.2f %%"`                // MatchedTokens over Tokens
	IdealHitRate    float64 `json:"ideal_hit_rate" row:"ideal hit rate|%.2f %%"`    // of a cache without limit and with pages of one token
	Nodes           int     `json:"nodes" row:"nodes at the end|%d"`                // without the root
	Leaves          int     `json:"leaves" row:"leaves|%d"`                         // at the end
	CachedTokens    int     `json:"cached_tokens" row:"tokens cached|%d"`           // at the end
	EvictedTokens   int     `json:"evicted_tokens" row:"tokens evicted|%d"`
	EvictCalls      int     `json:"evict_calls" row:"evictions|%d calls|omitzero"`
	BytesPerToken   float64 `json:"bytes_per_cached_token" row:"memory per cached token|%.2f bytes"` // growth of the Go heap over the first replay
	MatchPerReq     float64 `json:"match_ns_per_request" row:"match|%.0f ns a request"`
	PagesPerReq     float64 `json:"pages_ns_per_request" row:"reading the page ids|%.0f ns a request"` // of the matched pages
	InsertPerReq    float64 `json:"insert_ns_per_request" row:"insert, with pins|%.0f ns a request"`   // Pin, Extend and Unpin
	EvictPerCall    float64 `json:"evict_ns_per_call" row:"evict|%.0f ns a call|omitzero"`
	MatchPerToken   float64 `json:"match_ns_per_token" row:"match|%.3f ns a matched token|omitzero"`              // 0 if none matched, noise if few
	MemcmpPerToken  float64 `json:"memcmp_ns_per_token" row:"memcmp of the same tokens|%.3f ns a token|omitzero"` // see flatCopy
	MatchOverMemcmp float64 `json:"match_over_memcmp" row:"match over memcmp|%.2f|omitzero"`
}

// Rows returns the figures, one a row, but not the times of a matched token if there are fewer of them
// than requests: then Match only searches and compares next to nothing.
func (s *RadixSummary) Rows() (rows [][]string, legend string) {
	shown := *s
	if s.MatchedTokens <= s.Requests {
		shown.MatchPerToken, shown.MemcmpPerToken, shown.MatchOverMemcmp = 0, 0, 0
	}
	return rowsOf(&shown), ""
}

// Steps returns how often a [PlayRadix] of this configuration calls progress.
func (c RadixConfig) Steps() int { return 3 + 2*bounds.Fill(c).Passes }

// PlayRadix replays a trace. Each request is matched; the matched pages are pinned; pages are
// evicted if the new pages do not fit; and the request's whole pages are inserted. progress, if
// not nil, is called after each replay. Bad sizes and the end of ctx are errors.
//
// Every replay starts with an empty cache. The first replay counts, and measures memory while
// nothing else runs. The second replay uses an ideal cache. The third replay lays out the flat
// copy (see flatCopy). Then timed replays and memcmp passes alternate. A reported time is the
// median over the passes; the time of a pass is the sum over all requests, less the cost of
// reading the clock: see stopwatch.
func PlayRadix(ctx context.Context, t *Trace, cfg RadixConfig, progress func()) (*RadixSummary, error) {
	if err := cfg.validate(t); err != nil {
		return nil, err
	}
	cfg = bounds.Fill(cfg)
	p := &radixPlay{ctx: ctx, trace: t, cfg: cfg, progress: orNothing(progress)}
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

// replay runs the whole trace on an empty cache. look, if not nil, is called after each
// step with the index of its request.
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

// run replays the trace on r; look is as in replay.
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

// count runs the first replay: it fills in the counts and the memory, and sets p.fnv.
func (p *radixPlay) count() (*RadixSummary, error) {
	r, err := newReplayer(p.trace, p.cfg)
	if err != nil {
		return nil, err
	}
	own := heapBytes() // includes the replayer, its scratch and an empty cache
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

// time runs the timed replays and the memcmp passes over flat, and fills in the medians in s. It
// panics if a replay matches other lengths than the first replay did.
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
		r = nil // frees its cache
		runtime.GC()
		watch, err := flat.compare(p.ctx)
		if err != nil {
			return err
		}
		memcmp = append(memcmp, watch.total(clock))
		p.progress()
	}
	per := func(sums []time.Duration, n int) float64 {
		if n == 0 {
			return 0
		}
		return float64(median(sums)) / float64(n)
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

// heapBytes returns the bytes of live objects on the Go heap.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC() // the first one may leave sweeping and finalizers to the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
