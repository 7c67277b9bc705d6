package kernels_test

import (
	"fmt"
	"math"
	"strings"

	"github.com/coppice-llm/coppice/engine/cuda/kernels"
)

// costTable returns the costs of a step, and the shares of the limits that they can reach, as
// Markdown.
func costTable(costs []kernels.Cost) string {
	var b strings.Builder
	b.WriteString("| kernel | for | launches | blocks | weights, MB | KV, MB | other loads, MB | written, MB | Gflop | H100 | H200 | what keeps it from more |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	mb := func(n int64) string {
		if n == 0 {
			return ""
		}
		if n < 1e7 {
			return fmt.Sprintf("%.2g", float64(n)/1e6)
		}
		return fmt.Sprintf("%.0f", float64(n)/1e6)
	}
	for i := range costs {
		c := &costs[i]
		older, why := c.Reach(kernels.H100)
		newer, whyNewer := c.Reach(kernels.H200)
		if why != whyNewer {
			why += "; H200: " + whyNewer
		}
		flops := ""
		if c.Flops > 0 {
			flops = fmt.Sprintf("%.0f", math.Ceil(float64(c.Flops)/1e9))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %d | %d | %s | %s | %s | %s | %s | %.0f %% | %.0f %% | %s |\n", c.Kernel, c.For, c.Launches, c.Blocks,
			mb(c.Weights), mb(c.KV), mb(c.Activations), mb(c.Written), flops, 100*older, 100*newer, why)
	}
	return b.String()
}
