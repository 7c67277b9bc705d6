package kernels_test

import (
	"fmt"
	"math"
	"strings"

	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/model/gguf"
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

// quantTable returns the time of steps of Llama-3.1-8B on an H200 with weights in bf16 and in Q4_K, as Markdown.
func quantTable() string {
	var b strings.Builder
	b.WriteString("What the model expects of an H200 with weights in bf16 and with all weights in Q4_K:\n\n" +
		"| step | bf16 | Q4_K | weights of a step, MB | what keeps Q4_K's largest product from more |\n|---|---|---|---|---|\n")
	shape, quant := kernels.Llama8B, kernels.Llama8B
	quant.Weights = kernels.FormOf(gguf.Q4_K, quant.Hidden)
	row := func(name string, plain, packed []kernels.Cost) {
		weights, why := int64(0), ""
		for _, c := range packed {
			weights += c.Weights
			if c.For == "gate, up, SwiGLU" && c.Flops > 0 {
				_, why = c.Reach(kernels.H200)
			}
		}
		fmt.Fprintf(&b, "| %s | %.2f ms | %.2f ms | %d | %s |\n", name, 1e3*kernels.Seconds(plain, kernels.H200), 1e3*kernels.Seconds(packed, kernels.H200), weights/1e6, why)
	}
	for _, rows := range []int{1, 8, 16, 64, 65, 256} {
		row(fmt.Sprintf("decode %d rows at 1,024 positions", rows), shape.Decode(rows, 1024), quant.Decode(rows, 1024))
	}
	row("a prompt of 4,096", shape.Prefill(4096), quant.Prefill(4096))
	return b.String() + "\n"
}
