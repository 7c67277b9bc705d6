package fleet

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/coppice-llm/coppice/bench"
)

// Result is what the callers of a run saw, and what it took. Latencies are of the
// requests after the first fifth, which find the caches cold; all else is of all.
type Result struct {
	Policy   string  `json:"policy"`
	Requests int     `json:"requests"`
	HitRate  float64 `json:"hit_rate"` // cached of prompt tokens

	TTFTp50 float64 `json:"ttft_ms_p50"` // from arrival at the router to the first token
	TTFTp99 float64 `json:"ttft_ms_p99"`
	ITLp50  float64 `json:"itl_ms_p50"` // between two tokens of an answer; within 1 %
	ITLp99  float64 `json:"itl_ms_p99"`
	E2Ep50  float64 `json:"e2e_ms_p50"` // to the last token
	E2Ep99  float64 `json:"e2e_ms_p99"`

	RequestsPerS float64 `json:"requests_per_s"` // ended, over the time of the middle three fifths of endings
	// The most of any worker over the mean, 1 being equal.
	ComputedBalance float64 `json:"computed_balance"` // prompt tokens that were run
	OutputBalance   float64 `json:"output_balance"`
	IdleWorkers     int     `json:"idle_workers"` // that got no request
	// RestartShare is of requests after Config.RestartAt that the restarted worker got, over
	// an equal share.
	RestartShare float64 `json:"restart_share,omitempty"`

	PromptTokens   int     `json:"prompt_tokens"`
	CachedTokens   int     `json:"cached_tokens"`
	PromisedTokens int     `json:"promised_tokens"` // that the index said the chosen workers have
	ComputedTokens int     `json:"computed_tokens"`
	OutputTokens   int     `json:"output_tokens"`
	Queued         int     `json:"queued"` // requests that waited at the router, as all were busy
	EvictedBlocks  int     `json:"evicted_blocks"`
	VirtualSeconds float64 `json:"virtual_s"`

	// Wall time of a choice, with the look into the index; 0 if it was not measured.
	SelectMean float64 `json:"select_us_mean,omitempty"`
	SelectP99  float64 `json:"select_us_p99,omitempty"`
}

// sums is what a run adds up.
type sums struct {
	prompt, cached, overlap int
	queued                  int
	ttft, e2e               []time.Duration
	gaps                    histogram
	ends                    []time.Duration
	choices                 []time.Duration
}

// steady tells whether a request counts for latencies.
func (p *play) steady(id int) bool { return id >= len(p.asked)/5 }

func (s *sums) first(p *play, id int, took time.Duration) {
	if p.steady(id) {
		s.ttft = append(s.ttft, took)
	}
}

func (s *sums) end(p *play, id int, took time.Duration) {
	s.ends = append(s.ends, p.clock.Now())
	if p.steady(id) {
		s.e2e = append(s.e2e, took)
	}
}

func (s *sums) chose(p *play, start time.Time) {
	if p.cfg.Clock != nil {
		s.choices = append(s.choices, p.cfg.Clock().Sub(start))
	}
}

// summarise puts the run into figures.
func (p *play) summarise() Result {
	s := &p.sums
	r := Result{
		Policy: Policy{p.cfg.Policy, p.cfg.Staged}.String(), Requests: len(p.asked), PromptTokens: s.prompt, CachedTokens: s.cached, PromisedTokens: s.overlap,
		Queued: s.queued, HitRate: float64(s.cached) / float64(s.prompt), VirtualSeconds: p.clock.Now().Seconds(),
		TTFTp50: bench.Percentile(s.ttft, 50), TTFTp99: bench.Percentile(s.ttft, 99), E2Ep50: bench.Percentile(s.e2e, 50), E2Ep99: bench.Percentile(s.e2e, 99),
		ITLp50: s.gaps.percentile(50), ITLp99: s.gaps.percentile(99), RequestsPerS: throughput(s.ends),
		EvictedBlocks: int(p.index.Stats().RemovedBlocks),
	}
	mostComputed, mostOutput := 0, 0
	for i := range p.workers {
		w := &p.workers[i]
		r.ComputedTokens += w.computed
		r.OutputTokens += w.output
		mostComputed, mostOutput = max(mostComputed, w.computed), max(mostOutput, w.output)
		if w.requests == 0 {
			r.IdleWorkers++
		}
	}
	if w := &p.workers[0]; p.cfg.RestartAt > 0 {
		r.RestartShare = float64(w.requests*len(p.workers)) / float64(max(1, len(p.asked)-w.since))
	}
	r.ComputedBalance = float64(mostComputed*len(p.workers)) / float64(max(1, r.ComputedTokens))
	r.OutputBalance = float64(mostOutput*len(p.workers)) / float64(max(1, r.OutputTokens))
	if n := len(s.choices); n > 0 {
		sum := time.Duration(0)
		for _, c := range s.choices {
			sum += c
		}
		r.SelectMean, r.SelectP99 = float64(sum)/float64(n)/1e3, bench.Percentile(s.choices, 99)*1e3
	}
	return r
}

// throughput is requests per second between the first and the last fifth of endings,
// which come in order.
func throughput(ends []time.Duration) float64 {
	lo, hi := len(ends)/5, len(ends)-1-len(ends)/5
	if hi <= lo || ends[hi] == ends[lo] {
		return 0
	}
	return float64(hi-lo) / (ends[hi] - ends[lo]).Seconds()
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// histogram counts durations in buckets a hundredth apart, roughly: 128 for each
// octave of nanoseconds.
type histogram struct {
	counts [64 * 128]int
	n      int
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucket(d)]++
	h.n++
}

func bucket(d time.Duration) int {
	x := uint64(max(d, 128))
	shift := bits.Len64(x) - 8
	return shift*128 + int(x>>shift) - 128
}

// least is the lower bound of a bucket.
func least(b int) time.Duration { return time.Duration((b%128 + 128) << (b / 128)) }

// percentile is the bucket in which the p-th percentile is, in milliseconds.
func (h *histogram) percentile(p int) float64 {
	rank := (h.n*p + 99) / 100
	for b, n := range h.counts {
		if rank -= n; rank <= 0 && n > 0 {
			return ms(least(b))
		}
	}
	return 0
}

func (r Result) String() string {
	return fmt.Sprintf("%-12s hit %.3f ttft %.1f/%.1f itl %.2f/%.2f e2e %.0f/%.0f bal %.2f/%.2f rps %.1f evict %d virt %.1f sel %.1f", r.Policy, r.HitRate, r.TTFTp50, r.TTFTp99,
		r.ITLp50, r.ITLp99, r.E2Ep50, r.E2Ep99, r.ComputedBalance, r.OutputBalance, r.RequestsPerS, r.EvictedBlocks, r.VirtualSeconds, r.SelectMean)
}
