package sizing

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Figures are the results of a run. Those of processors depend less than wall times on what else the
// machine does.
type Figures struct {
	Workers  int `json:"workers"`
	Sessions int `json:"sessions"`
	Blocks   int `json:"blocks"` // distinct ones, stored at the start

	BlockBytes        float64 `json:"bytes_per_block"`        // of the index, for a block that one worker has
	WorkerMB          float64 `json:"index_mb_per_worker"`    // mean
	WorkerMaxOverMean float64 `json:"index_max_over_mean"`    // blocks of the worker with the most
	OpenBytes         float64 `json:"bytes_per_open"`         // of the dispatcher, for an open request
	SystemBytes       uint64  `json:"system_bytes"`           // of the process at the end, as Go got it from the system
	StoreNs           float64 `json:"store_ns_per_block"`     // of processors, from the sink of events
	ColdCPU           float64 `json:"cpu_us_per_cold_choice"` // choice for a prompt that no worker has
	ColdP50           float64 `json:"cold_choice_us_p50"`
	ColdP99           float64 `json:"cold_choice_us_p99"`
	ChoiceCPU         float64 `json:"cpu_us_per_choice"` // choice, first token and end, for a next turn
	ChoiceAllocs      float64 `json:"allocs_per_choice"`

	Steady  Load `json:"load"`
	Churned Load `json:"load_with_churn"`
}

// Load has the figures of a phase under load.
type Load struct {
	PerSecond   float64 `json:"choices_per_s"`
	P50         float64 `json:"choice_us_p50"`
	P99         float64 `json:"choice_us_p99"`
	P999        float64 `json:"choice_us_p999"`
	Max         float64 `json:"choice_us_max"`
	HitRate     float64 `json:"hit_rate"`              // blocks of prompts that the chosen worker had, by the index and by predictions
	MaxOverMean float64 `json:"choices_max_over_mean"` // of any worker
	Left        int     `json:"workers_left"`
	LeaveP50    float64 `json:"leave_ms_p50"` // to drop a worker's reservations and blocks
	LeaveMax    float64 `json:"leave_ms_max"`
}

// Rows implements bench.Report.
func (f *Figures) Rows() (rows [][]string, legend string) {
	add := func(label, format string, values ...any) {
		rows = append(rows, []string{label, fmt.Sprintf(format, values...)})
	}
	add("workers", "%d", f.Workers)
	add("sessions", "%d", f.Sessions)
	add("blocks", "%.1f M", float64(f.Blocks)/1e6)
	add("index, a block", "%.1f bytes", f.BlockBytes)
	add("index, a worker", "%.2f MB", f.WorkerMB)
	add("blocks of a worker, max/mean", "%.2f", f.WorkerMaxOverMean)
	add("an open request", "%.1f kB", f.OpenBytes/1e3)
	add("process", "%.2f GB", float64(f.SystemBytes)/1e9)
	add("storing a block: CPU", "%.0f ns", f.StoreNs)
	add("choice, nothing cached: CPU, p50, p99", "%.0f, %.0f, %.0f µs", f.ColdCPU, f.ColdP50, f.ColdP99)
	add("choice, first token, end: CPU", "%.1f µs", f.ChoiceCPU)
	add("the same: allocations", "%.2f", f.ChoiceAllocs)
	for _, part := range []struct {
		name string
		l    *Load
	}{{"load", &f.Steady}, {"churn", &f.Churned}} {
		l := part.l
		add(part.name+": choices a second", "%.0f", l.PerSecond)
		add(part.name+": choice, p50, p99, p99.9, max", "%.0f, %.0f, %.0f, %.0f µs", l.P50, l.P99, l.P999, l.Max)
		add(part.name+": hit rate", "%.2f %%", 100*l.HitRate)
		add(part.name+": choices of a worker, max/mean", "%.2f", l.MaxOverMean)
		if l.Left > 0 {
			add(part.name+": workers that left", "%d", l.Left)
			add(part.name+": dropping a worker, p50, max", "%.1f, %.1f ms", l.LeaveP50, l.LeaveMax)
		}
	}
	return rows, "choice: from a prompt's block hashes to a reservation at a worker; wall time, with the wait for locks."
}

// percentile returns the p-th percentile of d in µs, by nearest rank; 0 if d is empty.
func percentile(d []time.Duration, p float64) float64 {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return float64(d[max(0, int(math.Ceil(float64(len(d))*p/100))-1)]) / float64(time.Microsecond)
}
