package kernels

import (
	"fmt"
)

// Shape has the dimensions of a model that the cost of its kernels depends on.
type Shape struct {
	Hidden, FFN, Layers, Heads, KVHeads, HeadDim, Vocab int
}

// Llama8B is the shape of Llama-3.1-8B.
var Llama8B = Shape{Hidden: 4096, FFN: 14336, Layers: 32, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 128256}

// Cost has the bytes and operations of all launches that one kernel makes in a step for one
// purpose.
type Cost struct {
	Kernel, For string
	Launches    int
	Blocks      int // per launch

	Weights     int64 // loaded bytes of weights
	KV          int64 // loaded bytes of the pool
	Activations int64 // other loaded bytes
	Unique      int64 // least bytes of device memory: each loaded byte once, and the written ones
	Written     int64
	Flops       int64 // on tensor cores

	fit fit
}

// fit describes how a launch uses a multiprocessor.
type fit struct {
	perSM    int   // blocks that run at a time, limited by registers and shared memory
	inFlight int64 // bytes that a block has requested at a time
}

func blocks(n, of int) int { return (n + of - 1) / of }

// How a product is stored.
const (
	ToF32  = 4 // bytes per element, except for Added and SwiGLU
	ToBF16 = 2
	Added  = 0 // added to f32 values in place
	SwiGLU = 1 // half as many elements, in bf16
)

// Product returns the cost of that many launches of a product: rows of k activations by a matrix
// of n rows of k weights. stored is one of ToF32, ToBF16, Added and SwiGLU.
func Product(purpose string, launches, rows, n, k, stored int) Cost {
	g := GEMMFor(rows)
	columns, height := g.Grid(rows, n)
	c := Cost{Kernel: g.Name, For: purpose, Launches: launches, Blocks: columns * height, fit: fit{g.perSM, g.inFlight}}
	l := int64(launches)
	c.Weights = l * 2 * int64(n) * int64(k) * int64(height)
	c.Activations = l * 2 * int64(rows) * int64(k) * int64(columns)
	c.Written = l * int64(rows) * int64(n) * ToF32
	switch stored {
	case ToBF16:
		c.Written /= 2
	case SwiGLU:
		c.Written /= 4
	}
	once := l * 2 * int64(rows) * int64(k)
	if stored == Added {
		c.Activations += c.Written
		once += c.Written
	}
	c.Unique = c.Weights/int64(height) + once + c.Written
	c.Flops = l * 2 * int64(rows) * int64(n) * int64(k)
	return c
}

// attend returns the cost of decode attention: rows of one token, each with context positions, that
// share no pages.
func (s Shape) attend(rows, context int) Cost {
	group, splits := s.Heads/s.KVHeads, blocks(context, 256)
	l := int64(s.Layers)
	c := Cost{Kernel: fmt.Sprint("attn_decode_", s.HeadDim), For: "K and V", Launches: s.Layers, Blocks: rows * splits * s.KVHeads,
		fit: fit{2, int64(2 * 64 * s.HeadDim * 2)}}
	c.KV = l * int64(rows) * 2 * 2 * int64(context) * int64(s.HeadDim) * int64(s.KVHeads)
	c.Written = l * s.states(rows, splits)
	c.Unique = c.KV + c.Written
	// A group's heads take 16 rows of an mma, even if they are fewer.
	c.Flops = l * int64(rows) * 4 * int64(context) * int64(s.HeadDim) * int64(s.KVHeads) * int64(blocks(group, 16)*16)
	return c
}

// states returns the bytes of split states that a layer writes and merges.
func (s Shape) states(rows, splits int) int64 {
	return 4 * int64(rows) * int64(splits) * int64(s.Heads) * int64(s.HeadDim+2)
}

// small returns the cost of a simple kernel that reads its data once in many blocks.
func small(kernel, purpose string, launches, blocks int, loaded, unique, written int64) Cost {
	l := int64(launches)
	return Cost{Kernel: kernel, For: purpose, Launches: launches, Blocks: blocks, Activations: l * loaded, Unique: l * (unique + written), Written: l * written,
		fit: fit{8, 4 << 10}}
}

// Decode returns the costs of a step of decoding rows, each with context positions, by kernel, in
// the order of a layer.
func (s Shape) Decode(rows, context int) []Cost {
	return s.step(rows, rows, []Cost{s.attend(rows, context), s.merge(rows, context)})
}

// Prefill returns the costs of a step of one prompt of that many tokens, with logits after its
// last token.
func (s Shape) Prefill(tokens int) []Cost {
	group := s.Heads / s.KVHeads
	per := 64 / group // tokens per item
	items := blocks(tokens, per)
	c := Cost{Kernel: fmt.Sprint("attn_prefill_", s.HeadDim), For: "K and V", Launches: s.Layers, Blocks: items * s.KVHeads, fit: fit{2, int64(2 * 64 * s.HeadDim * 2)}}
	l := int64(s.Layers)
	for i := range items {
		end := int64(min((i+1)*per, tokens))
		c.KV += l * 2 * 2 * end * int64(s.HeadDim) * int64(s.KVHeads)
		c.Flops += l * 4 * 64 * int64(blocks(int(end), 64)) * 64 * int64(s.HeadDim) * int64(s.KVHeads)
	}
	c.Written = l * 2 * int64(tokens) * int64(s.Heads) * int64(s.HeadDim)
	c.Unique = l*2*2*int64(tokens)*int64(s.HeadDim)*int64(s.KVHeads) + c.Written
	return s.step(tokens, 1, []Cost{c})
}

// merge returns the cost of attn_merge. The thread of each column also reads the maximum and the
// sum of each split.
func (s Shape) merge(rows, context int) Cost {
	splits := blocks(context, 256)
	loaded := 3 * 4 * int64(rows) * int64(splits) * int64(s.Heads) * int64(s.HeadDim)
	return small("attn_merge", "splits", s.Layers, rows*s.Heads, loaded, s.states(rows, splits), 2*int64(rows)*int64(s.Heads)*int64(s.HeadDim))
}

// heldByNorm is the number of elements of a row that rmsnorm keeps in registers; it reads the others
// twice.
const heldByNorm = 256 * 16

// step returns the costs of all kernels of a step: tokens is the number of tokens, wanted the
// number of rows with logits, attention the costs of the attention kernels.
func (s Shape) step(tokens, wanted int, attention []Cost) []Cost {
	t, hidden, all := int64(tokens), int64(s.Hidden), (s.Heads+2*s.KVHeads)*s.HeadDim
	norms := func(purpose string, launches, rows int) Cost {
		x := int64(rows) * 4 * hidden
		again := int64(rows) * 4 * max(hidden-heldByNorm, 0)
		c := small("rmsnorm", purpose, launches, rows, x+again, x, x/2)
		c.fit.inFlight = 4 * min(hidden, heldByNorm)
		c.Weights = int64(launches) * int64(rows) * 4 * hidden // f32
		return c
	}
	embed := small("embed", "tokens", 1, tokens, 0, 0, t*4*hidden)
	embed.Weights = t * 2 * hidden
	embed.Unique += embed.Weights
	steps := []Cost{
		embed,
		norms("layers", 2*s.Layers, tokens),
		Product("queries, keys, values", s.Layers, tokens, all, s.Hidden, ToF32),
		small("rope_write", "heads", s.Layers, tokens*(s.Heads+2*s.KVHeads), 4*t*int64(all), 4*t*int64(all), 2*t*int64(all)),
	}
	steps = append(steps, attention...)
	return append(steps,
		Product("attention's output", s.Layers, tokens, s.Hidden, s.Heads*s.HeadDim, Added),
		Product("gate, up, SwiGLU", s.Layers, tokens, 2*s.FFN, s.Hidden, SwiGLU),
		Product("down", s.Layers, tokens, s.Hidden, s.FFN, Added),
		norms("wanted rows", 1, wanted),
		Product("logits", 1, wanted, s.Vocab, s.Hidden, ToF32),
	)
}

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
