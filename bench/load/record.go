package load

import (
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Distribution summarises one latency over all requests, or over all gaps. All fields
// are 0 if there are no values.
type Distribution struct {
	Count        int
	Mean, StdDev time.Duration   // exact
	Min, Max     time.Duration   // exact
	Median       time.Duration   // up to 0.1 % too high
	Percentiles  []time.Duration // up to 0.1 % too high; in the order of Config.Percentiles
}

// Range and precision of the histograms. Values outside the range count as its nearest
// end.
const (
	shortest = time.Microsecond
	longest  = 24 * time.Hour // beyond the time of any useful run; more takes memory
	digits   = 3
)

// meter collects the values of a Distribution.
type meter struct {
	histogram    *hdrhistogram.Histogram
	sum, squares float64 // ns
	low, high    time.Duration
}

func newMeter() meter {
	return meter{histogram: hdrhistogram.New(int64(shortest), int64(longest), digits), low: math.MaxInt64}
}

func (m *meter) add(d time.Duration) {
	m.histogram.RecordValue(int64(min(max(d, 0), longest))) // cannot fail within the range
	m.sum += float64(d)
	m.squares += float64(d) * float64(d)
	m.low, m.high = min(m.low, d), max(m.high, d)
}

// distribution computes the summary. The standard deviation is that of the population.
func (m *meter) distribution(percentiles []float64) Distribution {
	d := Distribution{Count: int(m.histogram.TotalCount()), Percentiles: make([]time.Duration, len(percentiles))}
	if d.Count == 0 {
		return d
	}
	n := float64(d.Count)
	mean := m.sum / n
	d.Mean, d.StdDev = time.Duration(mean), time.Duration(math.Sqrt(max(0, m.squares/n-mean*mean)))
	d.Min, d.Max = m.low, m.high
	d.Median = m.percentile(50)
	for i, p := range percentiles {
		d.Percentiles[i] = m.percentile(p)
	}
	return d
}

// percentile returns the p-th percentile, for a p above 0 and at most 100.
func (m *meter) percentile(p float64) time.Duration {
	// The histogram returns the upper end of a bucket, which may exceed the largest value.
	return min(time.Duration(m.histogram.ValueAtPercentile(p)), m.high)
}

// record sums up the requests of a run. It belongs to one goroutine at a time.
type record struct {
	ttft, tpot, itl, e2el, lag meter

	completed, silent, good int             // silent: completed without output
	failed                  [failures]int   // by kind
	first                   [failures]error // first error of each kind
	input, output           int             // tokens
	cached, cacheable       int             // cached prompt tokens, and all prompt tokens of the requests that report them
	reached                 reached
	counted                 [byChunks + 1]int // requests by counting
	guessed                 int               // requests whose prompt tokens the server did not count
	seconds                 []float64         // output tokens that arrived in each second of the run
}

func newRecord() *record {
	return &record{ttft: newMeter(), tpot: newMeter(), itl: newMeter(), e2el: newMeter(), lag: newMeter()}
}

// add records a request that has ended, of a run that began at begin. slo may be nil.
func (r *record) add(s *sample, begin time.Time, slo *Objectives) {
	if s.failure != None {
		r.failed[s.failure]++
		if r.first[s.failure] == nil {
			r.first[s.failure] = s.err
		}
		return
	}
	r.completed++
	r.counted[s.counted]++
	r.input += s.prompt
	r.output += s.output
	if !s.promptKnown {
		r.guessed++
	}
	if s.cached >= 0 {
		r.cached += s.cached
		r.cacheable += s.prompt
	}
	r.reached.add(s)
	if slo != nil && slo.met(s) {
		r.good++
	}
	r.e2el.add(s.e2el)
	if s.lag >= 0 {
		r.lag.add(s.lag)
	}
	if s.ttft == 0 {
		r.silent++
		return
	}
	r.ttft.add(s.ttft)
	if tpot, ok := s.tpot(); ok {
		r.tpot.add(tpot)
	}
	at := s.sent.Sub(begin) + s.ttft
	share := float64(s.output) / float64(s.chunks())
	r.arrived(at, share)
	for _, gap := range s.gaps {
		r.itl.add(gap)
		at += gap
		r.arrived(at, share)
	}
}

// mostSeconds bounds the length of record.seconds: 24 hours, as for latencies. Output that arrives
// later counts in the last element.
const mostSeconds = int(longest / time.Second)

// arrived counts output tokens that arrived at a time, given from the beginning of the run. tokens
// may be a fraction: the caller spreads the tokens of an answer evenly over its chunks, since not
// all servers tell how many tokens a chunk has.
func (r *record) arrived(at time.Duration, tokens float64) {
	second := min(int(max(at, 0)/time.Second), mostSeconds)
	if second >= len(r.seconds) {
		r.seconds = append(slices.Grow(r.seconds, second+1-len(r.seconds)), make([]float64, second+1-len(r.seconds))...)
	}
	r.seconds[second] += tokens
}
