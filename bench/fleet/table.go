package fleet

import (
	"fmt"
	"strings"

	"github.com/coppice-llm/coppice/bench"
)

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
	for _, f := range t.Fleets {
		fmt.Fprintf(&b, "\n%s, %d workers: %d requests at %.4g/s, pools of %d tokens.", f.Trace, f.Workers, f.Requests, f.Rate, f.KVTokens)
	}
	return b.String()
}
