package kernels

// GPU has the figures of a device that bound the speed of a launch.
type GPU struct {
	Name  string
	Bytes float64 // of device memory per second
	L2    float64 // bytes from L2 per second
	Flops float64 // of dense bf16 products per second
	SMs   int
}

// Figures from the data sheets. L2 is from microbenchmarks of an H100, rounded down.
var (
	H100 = GPU{"H100 SXM", 3.35e12, 5.5e12, 989e12, 132}
	H200 = GPU{"H200", 4.8e12, 5.5e12, 989e12, 132}
)

// Assumptions for both.
const (
	latency   = 650e-9     // seconds of a load from device memory
	fromL2    = 64 * 1.7e9 // bytes per second into one multiprocessor
	between   = 2e-6       // seconds from the last block of a launch in a graph to full flow of the next
	mmaOfPeak = 0.62       // rate of mma.sync as a fraction of wgmma's
)

// Reach estimates the share of g's limit (memory or products, whichever takes longer) that
// launches of this shape can reach, and names the bottleneck. It is computed, not measured.
func (c *Cost) Reach(g GPU) (share float64, why string) {
	n := float64(c.Launches)
	loaded := float64(c.Weights + c.KV + c.Activations)
	memory, products := float64(c.Unique)/n/g.Bytes, float64(c.Flops)/n/g.Flops
	limit := max(memory, products)
	rounds := float64((c.Blocks + g.SMs - 1) / g.SMs) // blocks on the busiest multiprocessor
	flow := min(float64(int64(min(c.fit.perSM, int(rounds)))*c.fit.inFlight)/latency, fromL2)
	took := memory
	for _, x := range []struct {
		seconds float64
		why     string
	}{
		{loaded / n / g.L2, "rows are loaded again for each block of columns, from L2"},
		{loaded / n / float64(c.Blocks) * rounds / flow, "too few bytes are asked for at a time, or multiprocessors are idle"},
		{float64(c.Flops) / n / float64(c.Blocks) * rounds * float64(g.SMs) / (mmaOfPeak * g.Flops), "mma.sync, and idle multiprocessors in the last round"},
	} {
		if x.seconds > took {
			took, why = x.seconds, x.why
		}
	}
	if between > took {
		why = "a launch is shorter than the gap between launches"
	} else if why == "" {
		why = "the gap between launches"
	}
	return limit / (took + between), why
}

// limit returns the least time of the launches in seconds.
func (c *Cost) limit(g GPU) float64 {
	return max(float64(c.Unique)/g.Bytes, float64(c.Flops)/g.Flops)
}

// Seconds estimates the time of a step of all these launches, each at its Reach.
func Seconds(costs []Cost, g GPU) (took float64) {
	for i := range costs {
		share, _ := costs[i].Reach(g)
		took += costs[i].limit(g) / share
	}
	return took
}

// Whole estimates the share of g's limits that a step of all these launches can reach.
func Whole(costs []Cost, g GPU) float64 {
	limit := 0.0
	for i := range costs {
		limit += costs[i].limit(g)
	}
	return limit / Seconds(costs, g)
}
