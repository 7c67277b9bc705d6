package bench

import (
	"fmt"
	"math"
	"strings"
)

// Rows returns a header and a row for each trace and capacity. The name of a trace is
// in its first row only.
func (table *CurveTable) Rows() (_ [][]string, legend string) {
	rows := [][]string{{"trace", "size", "tokens", "simulated", "curve", "difference"}}
	for _, t := range table.Traces {
		name := t.Name
		for _, p := range t.Points {
			rows = append(rows, []string{
				name, fmt.Sprintf("%gx", p.Factor), fmt.Sprint(p.CapacityTokens),
				fmt.Sprintf("%.2f %%", 100*p.Simulated), fmt.Sprintf("%.2f %%", 100*p.Curve), fmt.Sprintf("%+.2f", p.Difference),
			})
			name = ""
		}
	}
	return rows, table.legend()
}

// worst returns the largest absolute difference of the table, in percentage points.
func (table *CurveTable) worst() float64 {
	worst := 0.0
	for _, t := range table.Traces {
		for _, p := range t.Points {
			worst = max(worst, math.Abs(p.Difference))
		}
	}
	return worst
}

// legend explains the columns and gives the sizes of the traces.
func (table *CurveTable) legend() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Pages of %d tokens, LRU. size: of the cache, as a multiple of the predicting one, and in tokens, at\n", table.PageTokens)
	b.WriteString("least the longest request. simulated: hit rate by tokens of a cache of this size. curve: the hit rate\n")
	fmt.Fprintf(&b, "that the cache of size 1x predicted with a live curve of %d samples. difference: in points, the\n", table.Samples)
	fmt.Fprintf(&b, "largest %.2f.\n", table.worst())
	for _, t := range table.Traces {
		fmt.Fprintf(&b, "\n%v; 1x is %d.", &t.TraceSizes, t.BaseTokens)
	}
	return b.String()
}
