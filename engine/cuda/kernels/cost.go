package kernels

import (
	"fmt"
	"slices"
	"strings"
)

// Shape has the dimensions of a model that the cost of its kernels depends on.
type Shape struct {
	Hidden, FFN, Layers, Heads, KVHeads, HeadDim, Vocab int

	Weights *Form // of all matrices; nil: bf16
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
	Again       int64 // bytes of device memory that are loaded again, because L2 does not keep them
	Written     int64
	Flops       int64 // on tensor cores

	fit fit
}

// fit describes how a launch uses a multiprocessor.
type fit struct {
	perSM        int     // blocks that run at a time, limited by registers and shared memory
	inFlight     int64   // bytes that a block has requested at a time
	instructions int64   // of a block, summed over threads; 0 if they take less time than its loads
	seconds      float64 // of a launch besides, such as a copy's
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
// of n rows of k weights in form f, or in bf16 if f is nil. stored is one of ToF32, ToBF16, Added and SwiGLU.
func Product(purpose string, launches, rows, n, k, stored int, f *Form) Cost {
	g := GEMMFor(rows)
	columns, height := g.Grid(rows, n)
	bands := blocks(height, 8) // a band of blocks loads the weights from device memory
	c := Cost{Kernel: g.Name, For: purpose, Launches: launches, Blocks: columns * height, fit: fit{perSM: g.perSM, inFlight: g.inFlight}}
	l := int64(launches)
	c.Weights = l * 2 * int64(n) * int64(k) * int64(height)
	if f != nil {
		c.Kernel, c.Weights = f.Kernel(g.Name), l*int64(f.Bytes(n, k))*int64(height)
		c.fit.inFlight, c.fit.instructions = f.inFlight(g), f.instructions(g, k)
	}
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
	if c.Weights/int64(height*launches) > l2Kept {
		c.Again = c.Weights / int64(height) * int64(bands-1)
	}
	c.Flops = l * 2 * int64(rows) * int64(n) * int64(k)
	return c
}

// products returns the costs of the same product as the backend launches it: in slices if it has too few
// blocks for the multiprocessors. L2 keeps the slices, so they take no bandwidth of device memory.
func products(purpose string, launches, rows, n, k, stored int, f *Form) []Cost {
	if f != nil && Widened(rows) && purpose != logits {
		l, bytes := int64(launches), int64(f.Bytes(n, k))
		widen := small(f.Kernel("widen"), purpose, launches, n*blocks(k, 2048), 0, bytes, 2*int64(n)*int64(k))
		widen.Weights, widen.fit.instructions = l*bytes, WidenInstructions*min(int64(k), 2048)/8
		return append([]Cost{widen}, products(purpose, launches, rows, n, k, stored, nil)...)
	}
	c := Product(purpose, launches, rows, n, k, stored, f)
	cut := Slices(rows, n, k, multiprocessors)
	if cut == 1 {
		return []Cost{c}
	}
	parts, written := int64(launches)*int64(cut)*4*int64(rows)*int64(n), c.Written
	sum := small("gemm_sum", purpose, launches, blocks(n, 256)*rows, 0, 0, written/int64(launches))
	sum.Activations, sum.fit.inFlight = parts, 256*4*int64(cut)
	if stored == Added {
		sum.Activations += written
		sum.Unique += written
		c.Activations -= written
		c.Unique -= written
	}
	c.Kernel, c.Blocks, c.Written = "gemm_slices", c.Blocks*cut, parts
	if c.fit.instructions /= int64(cut); f != nil {
		c.Kernel = f.Kernel(c.Kernel)
	}
	c.Unique -= written
	return []Cost{c, sum}
}

// logits is the purpose of the product with the head, whose weights stay as they are.
const logits = "logits"

// attend returns the cost of decode attention: rows of one token, each with context positions, that
// share no pages.
func (s Shape) attend(rows, context int) Cost {
	group, splits := s.Heads/s.KVHeads, blocks(context, 256)
	l := int64(s.Layers)
	c := Cost{Kernel: fmt.Sprint("attn_decode_", s.HeadDim), For: "K and V", Launches: s.Layers, Blocks: rows * splits * s.KVHeads,
		fit: fit{perSM: 2, inFlight: int64(2 * 64 * s.HeadDim * 2)}}
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
		fit: fit{perSM: 8, inFlight: 4 << 10}}
}

// Decode returns the costs of a step of decoding rows, each with context positions, by kernel, in
// the order of a layer.
func (s Shape) Decode(rows, context int) []Cost {
	return s.step(rows, rows, []Cost{s.attend(rows, context), s.merge(rows, context)})
}

// Prefill returns the costs of a step of one prompt of that many tokens, with logits after its
// last token.
func (s Shape) Prefill(tokens int) []Cost { return s.Extend(tokens, 0) }

// Extend returns the costs of a step of that many tokens of one prompt, after cached tokens, with logits
// after the last one.
func (s Shape) Extend(tokens, cached int) []Cost {
	group := s.Heads / s.KVHeads
	per := 64 / group // tokens per item
	items, splits := blocks(tokens, per), blocks(cached+tokens, 256)
	apart := splits > 1 && items*s.KVHeads < multiprocessors
	c := Cost{Kernel: fmt.Sprint("attn_prefill_", s.HeadDim), For: "K and V", Launches: s.Layers, Blocks: items * s.KVHeads, fit: fit{perSM: 2, inFlight: int64(2 * 64 * s.HeadDim * 2)}}
	l := int64(s.Layers)
	byItem := 0
	for i := range items {
		end := int64(cached + min((i+1)*per, tokens))
		byItem += blocks(int(end), 256)
		c.KV += l * 2 * 2 * end * int64(s.HeadDim) * int64(s.KVHeads)
		c.Flops += l * 4 * 64 * int64(blocks(int(end), 64)) * 64 * int64(s.HeadDim) * int64(s.KVHeads)
	}
	c.Written = l * 2 * int64(tokens) * int64(s.Heads) * int64(s.HeadDim)
	all := []Cost{c}
	if apart {
		c.Kernel, c.Blocks, c.Written = fmt.Sprint("attn_decode_", s.HeadDim), byItem*s.KVHeads, l*s.states(tokens, splits)
		all = []Cost{c, s.merge(tokens, cached+tokens)}
	}
	all[0].Unique = l*2*2*int64(cached+tokens)*int64(s.HeadDim)*int64(s.KVHeads) + c.Written
	return s.step(tokens, 1, all)
}

// merge returns the cost of attn_merge. A block has 16 values of each column in flight.
func (s Shape) merge(rows, context int) Cost {
	splits := blocks(context, 256)
	states := s.states(rows, splits)
	c := small("attn_merge", "splits", s.Layers, rows*s.Heads, states, states, 2*int64(rows)*int64(s.Heads)*int64(s.HeadDim))
	c.fit = fit{perSM: 8, inFlight: int64(4 * min(splits, 16) * s.HeadDim), instructions: int64(MergeFixed + MergeSplit*splits)}
	return c
}

// Instructions of a block of attn_merge and sample, summed over threads, as the interpreter counts them
// (TestInstructions).
const (
	MergeFixed, MergeSplit   = 33000, 450
	SampleFixed, SampleToken = 2600000, 178 // with top-k and top-p
	WidenInstructions        = 170          // of a thread, for 8 weights
)

// sampling returns the costs of sampling from the logits of rows, with top-k and top-p, and of the other
// kernels and copies around a step. A row's logits are read and written several times, and L2 keeps them.
func (s Shape) sampling(rows int) []Cost {
	row := 4 * int64(s.Vocab)
	sample := small("sample", "top-k, top-p", 1, rows, 10*int64(rows)*row, 0, 3*int64(rows)*row)
	sample.Unique = int64(rows) * row
	sample.fit = fit{perSM: 1, inFlight: 4 << 10, instructions: SampleFixed + SampleToken*int64(s.Vocab)}
	around := small("table_write and others", "tables, failures", 3, blocks(rows, 256), 12*int64(rows), 12*int64(rows), 4*int64(rows))
	copies := small("copies", "step data, tokens", 3, 1, 0, 200*int64(rows), 0)
	copies.fit.seconds = copySeconds
	return []Cost{sample, around, copies}
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
	return slices.Concat(
		[]Cost{embed, norms("layers", 2*s.Layers, tokens)},
		products("queries, keys, values", s.Layers, tokens, all, s.Hidden, ToF32, s.Weights),
		[]Cost{small("rope_write", "heads", s.Layers, tokens*(s.Heads+2*s.KVHeads), 4*t*int64(all), 4*t*int64(all), 2*t*int64(all))},
		attention,
		products("attention's output", s.Layers, tokens, s.Hidden, s.Heads*s.HeadDim, Added, s.Weights),
		products("gate, up, SwiGLU", s.Layers, tokens, 2*s.FFN, s.Hidden, SwiGLU, s.Weights),
		products("down", s.Layers, tokens, s.Hidden, s.FFN, Added, s.Weights),
		[]Cost{norms("wanted rows", 1, wanted)},
		products(logits, 1, wanted, s.Vocab, s.Hidden, ToF32, s.Weights),
		s.sampling(wanted),
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

// GPUNamed returns the figures of the device of that name, as its driver reports it; false if they are not
// known.
func GPUNamed(name string) (GPU, bool) {
	for _, g := range []GPU{H200, H100} {
		// A whole word: a GH200 is no H200.
		if short, _, _ := strings.Cut(g.Name, " "); slices.Contains(strings.Fields(name), short) {
			return g, true
		}
	}
	return GPU{}, false
}

// Assumptions for both.
const (
	latency   = 650e-9     // seconds of a load from device memory
	fromL2    = 64 * 1.7e9 // bytes per second into one multiprocessor
	between   = 2e-6       // seconds from the last block of a launch in a graph to full flow of the next
	mmaOfPeak = 0.62       // rate of mma.sync as a fraction of wgmma's
	issued    = 64 * 1.7e9 // thread instructions per second of one multiprocessor: half of its schedulers' rate
	l2Kept    = 40 << 20   // bytes of a matrix that L2 keeps from one band of blocks to the next

	multiprocessors = 132
	copySeconds     = 5e-6 // of a small copy between host and device
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
		{float64(c.Unique+c.Again) / n / g.Bytes, "weights are loaded again for each band of blocks, because L2 does not keep them"},
		{float64(c.fit.instructions) * rounds / issued, "instructions"},
		{c.fit.seconds, "a copy's latency"},
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
