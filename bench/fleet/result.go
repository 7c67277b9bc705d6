package fleet

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/bench"
)

// Result holds the figures of a run. Latencies are of the requests after the first fifth,
// which meets cold caches; all other figures are of all requests.
type Result struct {
	Policy   string  `json:"policy"`
	Requests int     `json:"requests"`
	HitRate  float64 `json:"hit_rate"` // CachedTokens over PromptTokens

	TTFTp50 float64 `json:"ttft_ms_p50"` // from arrival at the router to the first token
	TTFTp99 float64 `json:"ttft_ms_p99"`
	ITLp50  float64 `json:"itl_ms_p50"` // between two tokens of an answer; within 1 %
	ITLp99  float64 `json:"itl_ms_p99"`
	E2Ep50  float64 `json:"e2e_ms_p50"` // to the last token
	E2Ep99  float64 `json:"e2e_ms_p99"`

	RequestsPerS float64 `json:"requests_per_s"` // throughput over the middle three fifths of endings
	// ComputedBalance and OutputBalance are the number of tokens of the busiest worker divided
	// by the mean over all workers; 1 is perfect balance.
	ComputedBalance float64 `json:"computed_balance"` // of computed prompt tokens
	OutputBalance   float64 `json:"output_balance"`
	IdleWorkers     int     `json:"idle_workers"` // workers without any request
	// RestartShare is the number of requests sent to the restarted worker after
	// Config.RestartAt, divided by the number that each worker would have got if all got the
	// same.
	RestartShare float64 `json:"restart_share,omitempty"`

	PromptTokens   int     `json:"prompt_tokens"`
	CachedTokens   int     `json:"cached_tokens"`
	PromisedTokens int     `json:"promised_tokens"` // prompt tokens that the chosen workers had by the index
	ComputedTokens int     `json:"computed_tokens"`
	OutputTokens   int     `json:"output_tokens"`
	Queued         int     `json:"queued"` // requests that waited at the router because all workers were busy
	EvictedBlocks  int     `json:"evicted_blocks"`
	VirtualSeconds float64 `json:"virtual_s"`

	// SelectMean and SelectP99 are wall times of a choice with its lookup in the index, in
	// µs; 0 without Config.Clock.
	SelectMean float64 `json:"select_us_mean,omitempty"`
	SelectP99  float64 `json:"select_us_p99,omitempty"`
}

// measures are what play counts and measures during a run.
type measures struct {
	result    Result // the sums of tokens and requests; summarise adds the rest
	ttft, e2e []time.Duration
	gaps      histogram       // ITL
	ends      []time.Duration // virtual times of endings, ascending
	choices   []time.Duration // wall times
}

// steady reports whether the latencies of request id count: the first fifth of the requests does
// not.
func (p *play) steady(id int) bool { return id >= len(p.asked)/5 }

// summarise computes the figures of the run.
func (p *play) summarise() Result {
	s, r := &p.measures, p.measures.result
	r.Policy, r.Requests, r.VirtualSeconds = Routing{p.cfg.Policy, p.cfg.Staged}.String(), len(p.asked), p.clock.Now().Seconds()
	r.HitRate, r.EvictedBlocks = float64(r.CachedTokens)/float64(r.PromptTokens), int(p.gates[0].index.Stats().RemovedBlocks)
	r.TTFTp50, r.TTFTp99 = bench.Percentile(s.ttft, 50), bench.Percentile(s.ttft, 99)
	r.E2Ep50, r.E2Ep99 = bench.Percentile(s.e2e, 50), bench.Percentile(s.e2e, 99)
	r.ITLp50, r.ITLp99, r.RequestsPerS = s.gaps.percentile(50), s.gaps.percentile(99), throughput(s.ends)
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

// throughput returns the requests per second over the middle three fifths of ends, the ascending
// times at which requests ended. It is 0 if there are too few. The first fifth would include
// cold caches, the last fifth idle workers.
func throughput(ends []time.Duration) float64 {
	lo, hi := len(ends)/5, len(ends)-1-len(ends)/5
	if hi <= lo || ends[hi] == ends[lo] {
		return 0
	}
	return float64(hi-lo) / (ends[hi] - ends[lo]).Seconds()
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// histogram counts durations in buckets, 128 for each doubling. So a bucket is at most 1/128 of
// its value wide.
type histogram struct {
	counts [64 * 128]int
	n      int
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucket(d)]++
	h.n++
}

// bucket returns the index of the bucket of d: 128 times the number of doublings above 128 ns,
// plus the 7 bits after the leading one. Durations below 128 ns count as 128.
func bucket(d time.Duration) int {
	x := uint64(max(d, 128))
	shift := bits.Len64(x) - 8
	return shift*128 + int(x>>shift) - 128
}

// least returns the lower bound of bucket b.
func least(b int) time.Duration { return time.Duration((b%128 + 128) << (b / 128)) }

// percentile returns the lower bound of the bucket of the p-th percentile, in milliseconds.
func (h *histogram) percentile(p int) float64 {
	rank := (h.n*p + 99) / 100
	for b, n := range h.counts {
		if rank -= n; rank <= 0 && n > 0 {
			return ms(least(b))
		}
	}
	return 0
}

// Rows returns a header and a row for each run. The trace and the number of workers are only in
// the first row of each fleet. legend explains the columns.
func (t *Table) Rows() (_ [][]string, legend string) {
	head := []string{"trace", "workers", "policy", "hit rate", "TTFT p50", "TTFT p99", "ITL p99", "E2E p99", "computed", "computed max/mean", "output max/mean"}
	timed := t.timed()
	if timed {
		head = append(head, "select")
	}
	rows := [][]string{head}
	for _, f := range t.Fleets {
		trace, workers := f.Trace, fmt.Sprint(f.Workers)
		for _, r := range f.Results {
			row := []string{
				trace, workers, r.Policy, fmt.Sprintf("%.1f %%", 100*r.HitRate),
				bench.Milliseconds(r.TTFTp50), bench.Milliseconds(r.TTFTp99), bench.Milliseconds(r.ITLp99), bench.Milliseconds(r.E2Ep99),
				fmt.Sprintf("%.1f M", float64(r.ComputedTokens)/1e6), fmt.Sprintf("%.2f", r.ComputedBalance), fmt.Sprintf("%.2f", r.OutputBalance),
			}
			if timed {
				row = append(row, fmt.Sprintf("%.1f µs", r.SelectMean))
			}
			rows = append(rows, row)
			trace, workers = "", ""
		}
	}
	return rows, t.legend()
}

// timed reports whether the wall time of choices was measured.
func (t *Table) timed() bool {
	for _, f := range t.Fleets {
		for _, r := range f.Results {
			if r.SelectMean > 0 {
				return true
			}
		}
	}
	return false
}

// legend explains the columns and gives the sizes of the runs.
func (t *Table) legend() string {
	var b strings.Builder
	device := "of device " + t.Device
	if t.Worker == Mocker.String() {
		device = "with upstream's timing"
	}
	fmt.Fprintf(&b, "Workers: %s, %s, blocks of %d tokens, steps of %d tokens, at most %d running requests. Virtual time, seed %d.\n",
		t.Worker, device, BlockTokens, t.StepTokens, t.MaxRunning, t.Seed)
	fmt.Fprintf(&b, "Requests arrive at random, at %.0f %% of the rate that the fleet serves under round robin in a closed loop of %d requests per worker.\n", 100*t.Load, clientsPerWorker)
	b.WriteString("hit rate: prompt tokens found in the worker's cache. TTFT, E2E: from the arrival at the router to the first and the last\n")
	b.WriteString("token; ITL: between two tokens of an answer, within 1 %; all of requests after the first fifth. computed: prompt tokens run\n")
	b.WriteString("on the devices. max/mean: of any worker over the mean, of prompt tokens computed and of tokens output.\n")
	if t.timed() {
		b.WriteString("select: mean wall time of a choice with its index lookup; it differs from run to run.\n")
	}
	if t.EventDelay > 0 {
		fmt.Fprintf(&b, "The router receives cache events %v ms after the pass that made them.\n", t.EventDelay)
	}
	if t.Predict > 0 {
		fmt.Fprintf(&b, "The router assumes for %v ms that a prompt is cached where it was sent.\n", t.Predict)
	}
	if t.Gateways > 1 {
		fmt.Fprintf(&b, "%d gateways get the requests in turn and tell each other their reservations", t.Gateways)
		if t.Lag > 0 {
			fmt.Fprintf(&b, "; all messages to and from the last one arrive %v ms late", t.Lag)
		}
		b.WriteString(".\n")
	}
	for _, f := range t.Fleets {
		fmt.Fprintf(&b, "\n%s, %d workers: %d requests at %.4g/s, pools of %d tokens.", f.Trace, f.Workers, f.Requests, f.Rate, f.KVTokens)
	}
	return b.String()
}
