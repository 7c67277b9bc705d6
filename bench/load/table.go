package load

import (
	"fmt"
	"io"
	"math"
	"strings"
)

const (
	tableWidth = 50
	labelWidth = 40
)

// WriteTable writes the figures in the format of vllm bench serve, with its labels, so
// that scripts which parse that format work.
func (r *Result) WriteTable(w io.Writer) error {
	t := &table{}
	t.rule(" Serving Benchmark Result ", '=')
	t.count("Successful requests:", r.Completed)
	t.count("Failed requests:", r.Failed)
	for _, f := range r.Failures {
		t.count("  of them "+strings.ReplaceAll(f.Kind.String(), "_", " ")+":", f.Count)
	}
	if r.Unfinished > 0 {
		t.count("Unfinished requests:", r.Unfinished)
	}
	if r.Skipped > 0 {
		t.count("Turns skipped after a failure:", r.Skipped)
	}
	r.writeLoad(t)
	t.real("Benchmark duration (s):", r.Duration.Seconds())
	t.count("Total input tokens:", r.InputTokens)
	if r.CacheableTokens > 0 {
		t.count("Cached input tokens:", r.CachedTokens)
		t.real("Cached share of input (%):", 100*float64(r.CachedTokens)/float64(r.CacheableTokens))
	}
	if r.IdealOf > 0 {
		t.real("Ideal cached share of input (%):", 100*float64(r.IdealTokens)/float64(r.IdealOf))
	}
	if r.NewTokens > 0 {
		t.count("Recomputed input tokens:", r.RecomputedTokens)
		t.real("Computed over the ideal's (ratio):", r.computedOverIdeal())
	}
	t.count("Total generated tokens:", r.OutputTokens)
	t.real("Request throughput (req/s):", r.RequestThroughput())
	if r.Config.Objectives != nil {
		t.real("Request goodput (req/s):", r.Goodput())
	}
	t.real("Output token throughput (tok/s):", r.OutputThroughput())
	t.real("Peak output token throughput (tok/s):", r.PeakOutput)
	t.count("Peak concurrent requests:", r.PeakConcurrency)
	t.real("Total token throughput (tok/s):", r.TotalTokenThroughput())
	titles := []string{"Time to First Token", "Time per Output Token (excl. 1st token)", "Inter-token Latency", "End-to-end Latency"}
	for i, f := range r.figures() {
		t.figure(titles[i], f, r.Config.Percentiles)
	}
	if r.Lag.Count > 0 {
		t.figure("Sent Late (the generator's own)", figure{"delay", &r.Lag}, r.Config.Percentiles)
	}
	t.rule("", '=')
	for _, note := range r.Notes {
		fmt.Fprintf(t, "note: %s\n", note)
	}
	for _, f := range r.Failures {
		fmt.Fprintf(t, "%v, for example: %s\n", f.Kind, f.Example)
	}
	_, err := io.WriteString(w, t.String())
	return err
}

// writeLoad writes the configured load.
func (r *Result) writeLoad(t *table) {
	if n := r.Config.Concurrency; n > 0 {
		t.count("Maximum request concurrency:", n)
	}
	if n := r.Config.MaxConcurrency; n > 0 {
		t.count("Maximum request concurrency:", n)
	}
	if a := r.Config.Arrivals; a != nil && !math.IsInf(a.Rate, 1) {
		t.real("Request rate configured (RPS):", a.Rate)
	}
}

type table struct{ strings.Builder }

// rule writes a line of fill with a title in its middle.
func (t *table) rule(title string, fill rune) {
	left := (tableWidth - len(title)) / 2
	right := tableWidth - len(title) - left
	fmt.Fprintf(t, "%s%s%s\n", strings.Repeat(string(fill), left), title, strings.Repeat(string(fill), right))
}

func (t *table) count(label string, n int)    { fmt.Fprintf(t, "%-*s %-10d\n", labelWidth, label, n) }
func (t *table) real(label string, v float64) { fmt.Fprintf(t, "%-*s %-10.2f\n", labelWidth, label, v) }

func (t *table) figure(title string, f figure, percentiles []float64) {
	t.rule(title, '-')
	name := strings.ToUpper(f.name)
	if f.d.Count == 0 {
		fmt.Fprintf(t, "%-*s %-10s\n", labelWidth, name+" (ms):", "-")
		return
	}
	for _, v := range f.d.values(percentiles) {
		if v.name == "std" || v.name == "min" || v.name == "max" {
			continue // in the JSON
		}
		t.real(strings.ToUpper(v.name[:1])+v.name[1:]+" "+name+" (ms):", v.value.(float64))
	}
}
