package bench

import (
	"fmt"
)

// TierRuns are the runs of [PlayTiers].
type TierRuns []TierRun

// Rows returns a header and a row for each run.
func (runs TierRuns) Rows() (_ [][]string, legend string) {
	rows := [][]string{{"set", "tiers", "device", "host", "disk", "computed", "of ideal", "TTFT p50", "p99", "restored", "restart", "same bits", "leaked"}}
	for i := range runs {
		r := &runs[i]
		rows = append(rows, []string{
			fmt.Sprintf("%dx", r.WorkingSet), r.Config, tierShare(r.HitRateDevice), tierShare(r.HitRateHost), tierShare(r.HitRateDisk),
			fmt.Sprint(r.ComputedTokens), fmt.Sprintf("%.2f", float64(r.ComputedTokens)/float64(max(r.IdealComputedTokens, 1))),
			fmt.Sprintf("%.1f ms", r.TTFTp50Millis), fmt.Sprintf("%.1f ms", r.TTFTp99Millis),
			fmt.Sprint(r.RestoredTokens), tierShare(r.RestartHitRate), map[bool]string{true: "yes", false: "NO"}[r.Identical], fmt.Sprint(r.LeakedPages),
		})
	}
	return rows, "device, host, disk: where prompt tokens were found. Ideal: a device with room for everything. restart: found in the first\nround after the node was closed and opened again."
}

func tierShare(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
