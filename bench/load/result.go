package load

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

// Result holds the figures of a run.
type Result struct {
	URL, Model, Dataset string
	Endpoint            Endpoint
	Config              Config // with defaults filled in
	Begin               time.Time
	Duration            time.Duration // until the last request ended

	Completed   int // requests
	Failed      int // requests; by kind in Failures
	Unfinished  int // requests cancelled with the run
	Skipped     int // requests not sent because an earlier one of the session failed
	Failures    []FailureCount
	Good        int // completed requests that met Config.Objectives
	InputTokens int // prompt tokens of completed requests
	// OutputTokens counts generated tokens of completed requests.
	OutputTokens int
	// CachedTokens counts the prompt tokens that the server found in its cache, out of
	// CacheableTokens, the prompt tokens of all requests for which it reports this. Both
	// are 0 if it never does.
	CachedTokens, CacheableTokens int
	// IdealTokens counts the prompt tokens that a cache without a limit would have found, out of
	// IdealOf prompt tokens: those that came at the same place after the same beginning in an
	// earlier prompt of the run, or in an answer before it. By the server's count of tokens: exact
	// for prompts of token ids; for text, in proportion to its length.
	IdealTokens, IdealOf int
	// RecomputedTokens counts the prompt tokens that the server computed although the ideal cache
	// had them. NewTokens are those that it had to compute. Both are of the requests for which the
	// server reports its cached tokens.
	RecomputedTokens, NewTokens int

	PeakConcurrency int     // most concurrent requests
	PeakOutput      float64 // most output tokens in one second of the run

	TTFT, TPOT, ITL, E2EL Distribution
	// Lag is the delay with which requests of an open loop were sent, including waits
	// for MaxConcurrency. It is a figure of the load generator, not of the server.
	Lag   Distribution
	Notes []string // caveats for reading the figures
}

// FailureCount counts the requests that failed for one reason.
type FailureCount struct {
	Kind    Failure `json:"kind"`
	Count   int     `json:"count"`
	Example string  `json:"example"` // the first error of this kind
}

// result returns the figures. All sessions must have ended.
func (r *runner) result() *Result {
	all, p := r.record, r.cfg.Percentiles
	out := &Result{
		URL: r.client.shown, Model: r.client.cfg.Model, Dataset: r.dataset.String(), Endpoint: r.client.cfg.Endpoint,
		Config: r.cfg, Begin: r.begin, Duration: r.ended,
		Completed: all.completed, Unfinished: all.failed[Unfinished], Skipped: int(r.skipped.Load()), Good: all.good,
		InputTokens: all.input, OutputTokens: all.output, CachedTokens: all.cached, CacheableTokens: all.cacheable,
		IdealTokens: all.reached.ideal, IdealOf: all.reached.of, RecomputedTokens: all.reached.recomputed, NewTokens: all.reached.new,
		PeakConcurrency: r.peak,
		TTFT:            all.ttft.distribution(p), TPOT: all.tpot.distribution(p), ITL: all.itl.distribution(p), E2EL: all.e2el.distribution(p), Lag: all.lag.distribution(p),
	}
	for _, tokens := range all.seconds {
		out.PeakOutput = max(out.PeakOutput, tokens)
	}
	for kind := Connection; kind < Unfinished; kind++ {
		if n := all.failed[kind]; n > 0 {
			out.Failed += n
			out.Failures = append(out.Failures, FailureCount{kind, n, all.first[kind].Error()})
		}
	}
	out.note(all.counted[byTokenIDs], "requests without usage: their output is counted by token ids in the chunks")
	out.note(all.counted[byChunks], "requests without usage: their output is counted by chunks, which may hold several tokens")
	out.note(all.guessed, "requests without usage: their input is counted by what was sent, words for tokens")
	out.note(all.reached.unknown, "requests are not in the ideal: it remembers 1 GiB of prompts")
	out.note(all.silent, "requests got no output: they are in no TTFT")
	_, most := r.dataset.Requests()
	if a, n := r.cfg.Arrivals, most; a != nil && n > 1 && !math.IsInf(a.Rate, 1) {
		out.Notes = append(out.Notes, fmt.Sprintf("the rate configured is of sessions, with up to %d requests each", n))
	}
	if n := r.dataset.Sessions(); n > 0 && !r.cfg.Timed {
		began := out.Completed + out.Failed + out.Unfinished
		if began > n*most {
			out.Notes = append(out.Notes, fmt.Sprintf("the data set has %d sessions: they came again, and may have been cached", n))
		}
	}
	return out
}

// note adds a note that consists of the number n and what, unless n is 0.
func (r *Result) note(n int, what string) {
	if n > 0 {
		r.Notes = append(r.Notes, strconv.Itoa(n)+" "+what)
	}
}

// perSecond returns n over the duration of the run.
func (r *Result) perSecond(n int) float64 { return float64(n) / max(r.Duration.Seconds(), 1e-9) }

// RequestThroughput returns completed requests per second.
func (r *Result) RequestThroughput() float64 { return r.perSecond(r.Completed) }

// OutputThroughput returns output tokens per second.
func (r *Result) OutputThroughput() float64 { return r.perSecond(r.OutputTokens) }

// TotalTokenThroughput returns input and output tokens per second.
func (r *Result) TotalTokenThroughput() float64 { return r.perSecond(r.InputTokens + r.OutputTokens) }

// Goodput returns the requests per second that met the objectives.
func (r *Result) Goodput() float64 { return r.perSecond(r.Good) }

// computedOverIdeal returns the prompt tokens that the server computed, divided by those that it had
// to compute; 1 is the best. NewTokens must not be 0.
func (r *Result) computedOverIdeal() float64 {
	return float64(r.NewTokens+r.RecomputedTokens) / float64(r.NewTokens)
}

// figure is a distribution with its short name.
type figure struct {
	name string
	d    *Distribution
}

func (r *Result) figures() []figure {
	return []figure{{"ttft", &r.TTFT}, {"tpot", &r.TPOT}, {"itl", &r.ITL}, {"e2el", &r.E2EL}}
}

// MarshalJSON returns one object. Figures that vllm bench serve --save-result also
// writes have its keys: date, endpoint_type, model_id, num_prompts, request_rate ("inf"
// if all requests arrive at once), burstiness, max_concurrency, duration (s), completed,
// failed, total_input_tokens, total_output_tokens, request_throughput, request_goodput,
// output_throughput, total_token_throughput, max_output_tokens_per_s,
// max_concurrent_requests, and for each of ttft, tpot, itl and e2el mean_ttft_ms,
// median_ttft_ms, std_ttft_ms, p99_ttft_ms and so on. Further keys are url, dataset,
// concurrency, unfinished, skipped, failures, cached_tokens, cached_share, ideal_cached_tokens,
// ideal_cached_share, recomputed_tokens, computed_over_ideal, goodput (the objectives), min_ttft_ms, max_ttft_ms and so on, the same keys with send_delay in place
// of ttft for Lag, and notes. A value that was not configured or is not known is null.
func (r *Result) MarshalJSON() ([]byte, error) {
	var rate, burstiness, concurrency, most, cached, share, ideal, idealShare, recomputed, over, slo, goodput any
	if a := r.Config.Arrivals; a != nil {
		rate, burstiness = number(a.Rate), number(a.Burstiness)
	}
	if n := r.Config.Concurrency; n > 0 {
		concurrency, most = n, n
	}
	if n := r.Config.MaxConcurrency; n > 0 {
		most = n
	}
	if r.CacheableTokens > 0 {
		cached, share = r.CachedTokens, float64(r.CachedTokens)/float64(r.CacheableTokens)
	}
	if r.IdealOf > 0 {
		ideal, idealShare = r.IdealTokens, float64(r.IdealTokens)/float64(r.IdealOf)
	}
	if r.NewTokens > 0 {
		recomputed, over = r.RecomputedTokens, r.computedOverIdeal()
	}
	if o := r.Config.Objectives; o != nil {
		slo, goodput = o.String(), r.Goodput()
	}
	o := object{b: []byte{'{'}}
	o.add("date", r.Begin.UTC().Format(time.RFC3339))
	o.add("url", r.URL)
	o.add("endpoint_type", r.Endpoint.String())
	o.add("model_id", r.Model)
	o.add("dataset", r.Dataset)
	o.add("num_prompts", r.Completed+r.Failed+r.Unfinished)
	o.add("request_rate", rate)
	o.add("burstiness", burstiness)
	o.add("concurrency", concurrency)
	o.add("max_concurrency", most)
	o.add("duration", r.Duration.Seconds())
	o.add("completed", r.Completed)
	o.add("failed", r.Failed)
	o.add("unfinished", r.Unfinished)
	o.add("skipped", r.Skipped)
	o.add("failures", append([]FailureCount{}, r.Failures...))
	o.add("total_input_tokens", r.InputTokens)
	o.add("total_output_tokens", r.OutputTokens)
	o.add("cached_tokens", cached)
	o.add("cached_share", share)
	o.add("ideal_cached_tokens", ideal)
	o.add("ideal_cached_share", idealShare)
	o.add("recomputed_tokens", recomputed)
	o.add("computed_over_ideal", over)
	o.add("request_throughput", r.RequestThroughput())
	o.add("goodput", slo)
	o.add("request_goodput", goodput)
	o.add("output_throughput", r.OutputThroughput())
	o.add("total_token_throughput", r.TotalTokenThroughput())
	o.add("max_output_tokens_per_s", r.PeakOutput)
	o.add("max_concurrent_requests", r.PeakConcurrency)
	for _, f := range append(r.figures(), figure{"send_delay", &r.Lag}) {
		for _, v := range f.d.values(r.Config.Percentiles) {
			o.add(v.name+"_"+f.name+"_ms", v.value)
		}
	}
	o.add("notes", append([]string{}, r.Notes...))
	return append(o.b, '}'), o.err
}

type value struct {
	name  string
	value any // ms; nil if the distribution is empty
}

// values returns the figures with the names that JSON keys begin with: mean, median, std,
// min, max, p99 and so on.
func (d *Distribution) values(percentiles []float64) []value {
	ms := func(v time.Duration) any {
		if d.Count == 0 {
			return nil
		}
		return milliseconds(v)
	}
	all := []value{{"mean", ms(d.Mean)}, {"median", ms(d.Median)}, {"std", ms(d.StdDev)}, {"min", ms(d.Min)}, {"max", ms(d.Max)}}
	for i, p := range percentiles {
		all = append(all, value{percentileName(p), ms(d.Percentiles[i])})
	}
	return all
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func percentileName(p float64) string { return "p" + strconv.FormatFloat(p, 'f', -1, 64) }

// number returns v, or "inf", as JSON has no infinity.
func number(v float64) any {
	if math.IsInf(v, 1) {
		return "inf"
	}
	return v
}

// object writes a JSON object whose keys keep the order of add.
type object struct {
	b   []byte
	err error
}

func (o *object) add(key string, v any) {
	text, err := json.Marshal(v)
	if err != nil && o.err == nil {
		o.err = fmt.Errorf("load: %s: %w", key, err)
	}
	if len(o.b) > 1 {
		o.b = append(o.b, ',')
	}
	o.b = append(strconv.AppendQuote(o.b, key), ':')
	o.b = append(o.b, text...)
}

// WriteJSON writes the object of MarshalJSON, one key a line.
func (r *Result) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
