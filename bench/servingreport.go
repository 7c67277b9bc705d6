package bench

import (
	"fmt"
	"strings"
)

// Rows returns a header and a row for each load, level and policy. Load and level are
// in their first row only.
func (table *ServingTable) Rows() (_ [][]string, legend string) {
	rows := [][]string{{"load", "level", "policy", "req/s", "out tok/s", "TTFT p50", "TTFT p99", "ITL p50", "ITL p99", "hit rate", "computed", "preempt.", "Jain", "max diff.", "steps"}}
	for _, c := range table.Loads {
		load := c.Load
		for _, l := range c.Levels {
			level := fmt.Sprintf("%s (%.3g/s)", l.Level, l.Rate)
			for _, r := range l.Results {
				rows = append(rows, []string{
					load, level, r.Policy, fmt.Sprintf("%.2f", r.RequestsPerS), fmt.Sprintf("%.0f", r.OutputPerS),
					Milliseconds(r.TTFTp50), Milliseconds(r.TTFTp99), Milliseconds(r.ITLp50), Milliseconds(r.ITLp99),
					fmt.Sprintf("%.2f %%", 100*r.HitRate), fmt.Sprint(r.ComputedTokens), fmt.Sprint(r.Preemptions),
					r.jain(), fmt.Sprint(r.ServedDifference), fmt.Sprint(r.Steps),
				})
				load, level = "", ""
			}
		}
	}
	return rows, table.legend()
}

// jain formats the index; a dash if less than 1 % of the tokens were contended.
func (r *ServingResult) jain() string {
	if 100*r.ContendedTokens < r.ComputedTokens+r.OutputTokens {
		return "–"
	}
	return fmt.Sprintf("%.3f", r.Jain)
}

// Milliseconds formats a duration given in ms: "12.3 ms", or "1.23 s" from one second.
func Milliseconds(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%.2f s", ms/1000)
	}
	return fmt.Sprintf("%.1f ms", ms)
}

// legend explains the columns and gives the sizes of the runs.
func (table *ServingTable) legend() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Simulated device %s, %d requests per run, seed %d, pages of %d tokens, steps of %d tokens, at most %d running\n", table.Profile, table.Requests, table.Seed, table.PageTokens, table.StepTokens, table.MaxRunning)
	fmt.Fprintf(&b, "requests, %d plans out at a time. Virtual time. level: the rate of arrivals, in parentheses in requests/s.\n", table.MaxInflight)
	b.WriteString("req/s and out tok/s: served, over the whole run. TTFT: from arrival to the first token. ITL: between two tokens of\n")
	b.WriteString("one answer. hit rate: prompt tokens from the cache, at first admission. computed: prompt tokens that were not.\n")
	b.WriteString("Jain: Jain's index of the shares of tenants that waited, 1 means equal; – if less than 1 % of the tokens were served while\n")
	b.WriteString("several waited. max diff.: largest difference in served tokens between two tenants that waited the whole time.\n")
	for _, c := range table.Loads {
		fmt.Fprintf(&b, "\n%s: room for %d tokens; the capacity is %.2f requests/s.", c.Load, c.KVTokens, c.Capacity)
	}
	return b.String()
}
