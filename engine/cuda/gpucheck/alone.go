package gpucheck

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/kernels"
)

// Kernel is the measurement of one kernel, launched again and again with inputs of the measured model's
// shape. Weights come from different memory each time, so that L2 does not have them.
type Kernel struct {
	Name     string
	Seconds  float64 // of a launch
	Expected float64 `json:",omitempty"` // seconds by the cost model of package kernels, if it knows the device
	OfMemory float64 `json:",omitempty"` // least bytes of device memory per second, as a share of the copy's
	OfPeak   float64 `json:",omitempty"` // share of the data sheet's rate of products, if the device is known
}

// alone measures kernels one by one.
type alone struct {
	*bench
	cfg   *Config
	r     *Report
	shape kernels.Shape // with one layer
	gpu   kernels.GPU
	rand  *rand.Rand
}

// kernelsAlone measures the kernels that take most of a step.
func kernelsAlone(ctx context.Context, cfg *Config, r *Report) error {
	c := cfg.Model
	a := &alone{cfg: cfg, r: r, rand: rand.New(rand.NewPCG(7, 8)), shape: kernels.Shape{Hidden: c.Hidden, FFN: kernels.Padded(c.FFN), Layers: 1, Heads: c.Heads,
		KVHeads: c.KVHeads, HeadDim: c.HeadDim, Vocab: c.Vocab}}
	a.gpu, _ = kernels.GPUNamed(r.Device.Name)
	for _, measure := range []func(){a.products, a.attention, a.sampling} {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := with(cfg, func(b *bench) { // each with memory of its own
			a.bench = b
			if cubin := kernels.Cubin("gemm", r.Device.Major, r.Device.Minor); cubin != nil {
				b.image = func(name string) []byte { return kernels.Cubin(name, r.Device.Major, r.Device.Minor) }
			}
			measure()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// put allocates device memory with that content.
func (a *alone) put(data []byte) cudrv.Ptr {
	p := a.alloc(len(data))
	host, err := a.HostAlloc(len(data))
	a.do(err)
	if a.err != nil {
		return p
	}
	copy(host, data)
	a.do(a.CopyIn(a.s, p, host))
	a.do(a.SyncStream(a.s))
	a.do(a.HostFree(host))
	return p
}

// add measures n launches, after one, whose cost is that of costs; launch gets their numbers from 0.
func (a *alone) add(name string, n int, costs []kernels.Cost, launch func(i int) error) {
	i := -1
	k := Kernel{Name: name, Seconds: a.seconds(n, func() error { i++; return launch(i) })}
	unique, flops := 0.0, 0.0
	for _, c := range costs {
		unique, flops = unique+float64(c.Unique), flops+float64(c.Flops)
	}
	if a.r.Ceilings.CopyBytesPerSecond > 0 {
		k.OfMemory = rate(unique, k.Seconds) / a.r.Ceilings.CopyBytesPerSecond
	}
	if a.gpu.Name != "" {
		k.OfPeak, k.Expected = rate(flops, k.Seconds)/a.gpu.Flops, kernels.Seconds(costs, a.gpu)
	}
	if a.err == nil {
		a.r.Kernels = append(a.r.Kernels, k)
		a.cfg.Log(fmt.Sprintf("%s: %.1f µs", k.Name, 1e6*k.Seconds))
	}
}

// launch returns a launch of a kernel.
func (a *alone) launch(module, name string, x, y, threads, shared int, args ...any) func() error {
	f := a.function(module, name)
	if a.err == nil && shared > 0 {
		a.err = a.SetMaxDynamicShared(f, shared)
	}
	l := cudrv.Launch{Grid: [3]int{x, y}, Block: [3]int{threads}, SharedBytes: shared, Stream: a.s, Args: cudrv.Args(args...)}
	return func() error { return a.Launch(f, l) }
}

// products measures the products of a layer and of the logits for several numbers of rows, in slices where
// the backend would have them.
func (a *alone) products() {
	s := &a.shape
	heads, all := s.Heads*s.HeadDim, (s.Heads+2*s.KVHeads)*s.HeadDim
	for _, p := range []struct {
		name         string
		n, k, stored int
		kind         int32
	}{{"queries, keys, values", all, s.Hidden, kernels.ToF32, 1}, {"attention's output", s.Hidden, heads, kernels.Added, 2},
		{"gate, up", 2 * s.FFN, s.Hidden, kernels.SwiGLU, 3}, {"down", s.Hidden, s.FFN, kernels.Added, 2}, {"logits", s.Vocab, s.Hidden, kernels.ToF32, 1}} {
		k := kernels.Padded(p.k)
		weights := 2 * p.n * k
		turns := max(1, a.cfg.CopyBytes/weights)
		w := a.alloc(turns * weights)
		for _, rows := range []int{1, 64, 65, 128, a.cfg.Prompt} {
			if p.name == "logits" && rows > 128 {
				continue
			}
			out, in := a.alloc(4*rows*p.n), a.alloc(2*rows*k)
			cut := kernels.Slices(rows, p.n, k, a.r.Device.Multiprocessors)
			name, parts := kernels.GEMMFor(rows).Name, cudrv.Ptr(0)
			if cut > 1 {
				name, parts = "gemm_slices, gemm_sum", a.alloc(4*cut*rows*p.n)
			}
			cost := kernels.Product("", 1, rows, p.n, k, p.stored, nil)
			var turn []func() error
			for i := range turns {
				at := w + cudrv.Ptr(i*weights)
				if cut == 1 {
					g := kernels.GEMMFor(rows)
					x, y := g.Grid(rows, p.n)
					turn = append(turn, a.launch("gemm", g.Name, x, y, 256, g.SharedBytes, out, in, at, cudrv.Ptr(0), int32(rows), int32(p.n), int32(k), p.kind, cudrv.Ptr(0)))
					continue
				}
				parted := a.launch("gemm", "gemm_slices", (p.n+127)/128, (rows+127)/128*cut, 256, 0, parts, in, at, int32(rows), int32(p.n), int32(k), cudrv.Ptr(0))
				sum := a.launch("gemm", "gemm_sum", (p.n+255)/256, rows, 256, 0, out, parts, cudrv.Ptr(0), int32(rows), int32(p.n), int32(k), p.kind, cudrv.Ptr(0))
				turn = append(turn, func() error {
					if err := parted(); err != nil {
						return err
					}
					return sum()
				})
			}
			a.add(fmt.Sprintf("%s, %s, %d rows", name, p.name, rows), a.cfg.Repeats, []kernels.Cost{cost}, func(i int) error { return turn[i%turns]() })
			for _, p := range []cudrv.Ptr{out, in, parts} {
				if p != 0 && a.err == nil {
					a.err = a.Free(p)
				}
			}
		}
		if a.err == nil {
			a.err = a.Free(w)
		}
	}
}

// attention measures decoding rows in pages of their own, and the merge of their splits.
func (a *alone) attention() {
	s, context := &a.shape, a.cfg.Context
	const page = 16
	pages, splits, elements := (context+page-1)/page, (context+255)/256, 2*s.KVHeads*page*s.HeadDim
	for _, rows := range []int{1, a.cfg.SharedRows} {
		var table, items, order, slots, positions []int32
		for r := range int32(rows) {
			for p := range pages {
				table = append(table, r*int32(pages)+int32(p))
			}
			for split := range int32(splits) {
				items = append(items, r, 1, split, min((split+1)*256, int32(context)))
			}
			order, slots, positions = append(order, r), append(slots, r), append(positions, int32(context-1))
		}
		heads := s.Heads * s.HeadDim
		q, pool, at := a.alloc(2*rows*heads), a.alloc(2*rows*pages*elements), a.put(words(positions...))
		states, out := a.alloc(4*rows*splits*s.Heads*(s.HeadDim+2)), a.alloc(2*rows*kernels.Padded(heads))
		name := fmt.Sprint("attn_decode_", s.HeadDim)
		decode := a.launch(kernels.Attention(s.HeadDim), name, len(items)/4, s.KVHeads, 128, kernels.TileBytes(s.HeadDim), states, q, pool, a.put(words(table...)),
			uint64(elements), uint64(0), int32(pages), int32(4), int32(s.KVHeads), a.put(words(items...)), a.put(words(order...)), a.put(words(slots...)), at,
			int32(s.Heads), int32(splits), float32(1/math.Sqrt(float64(s.HeadDim))), cudrv.Ptr(0))
		merge := a.launch("merge", "attn_merge", rows, s.Heads, 128, 0, out, states, at, int32(s.Heads), int32(s.HeadDim), int32(splits), cudrv.Ptr(0))
		for kernel, launch := range map[string]func() error{name: decode, "attn_merge": merge} {
			var costs []kernels.Cost
			for _, c := range s.Decode(rows, context) {
				if strings.HasPrefix(c.Kernel, kernel) {
					costs = append(costs, c)
				}
			}
			a.add(fmt.Sprintf("%s, %d rows, %d positions", kernel, rows, context), a.cfg.Repeats, costs, func(int) error { return launch() })
		}
	}
}

// sampling measures sample with top-k and top-p.
func (a *alone) sampling() {
	vocab := a.shape.Vocab
	for _, rows := range []int{1, a.cfg.SharedRows} {
		var draws []byte
		for r := range int32(rows) {
			draws = append(draws, cudrv.Args(uint64(r), r, int32(0), float32(1), float32(0.9), float32(0), float32(0), float32(0), float32(0), int32(50), int32(2), int32(0), int32(0), int32(-1), r, int32(0), int32(0))...)
		}
		launch := a.launch("sample", "sample", rows, 1, kernels.SampleThreads(vocab), 0, a.alloc(12*rows), a.alloc(4*rows*vocab), a.put(normals(a.rand, rows*vocab, false)), a.put(draws),
			cudrv.Ptr(0), cudrv.Ptr(0), a.alloc(4*rows), a.alloc(4*rows), cudrv.Ptr(0), int32(vocab), cudrv.Ptr(0))
		var costs []kernels.Cost
		for _, c := range a.shape.Decode(rows, 1) {
			if c.Kernel == "sample" {
				costs = append(costs, c)
			}
		}
		a.add(fmt.Sprintf("sample, top-k and top-p, %d rows", rows), a.cfg.Repeats, costs, func(int) error { return launch() })
	}
}
