package gpucheck

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

// launch is one launch of a case. args returns its arguments for the addresses of the buffers.
type launch struct {
	module, kernel  string
	grid            [3]int
	threads, shared int
	args            func(p []cudrv.Ptr) []byte
}

// kernelCase has random inputs of one kernel or of several successive ones. The last buffer is the
// result. It holds floats, f32 or bf16, whose relative L2 distance from the interpreter's may be
// up to limit; if limit is 0, all bits must be equal.
type kernelCase struct {
	name     string
	launches []launch
	buffers  [][]byte
	bf16     bool
	limit    float64
}

// kernelsAgree compares kernels on the device with the interpreter: compiled by the driver from PTX, and
// as machine code if there is some for the device. Tests compare the interpreter's results with f64.
func kernelsAgree(ctx context.Context, cfg *Config, r *Report) error {
	model := *cfg
	model.Driver, model.Device = vm.New(ptxvm.Config{MemoryBytes: 256 << 20}), 0
	cases := kernelCases(rand.New(rand.NewPCG(5, 6)))
	want, errs, err := results(ctx, &model, kernels.PTX, cases)
	if err = errors.Join(append(errs, err)...); err != nil {
		return err
	}
	images := []image{{"", kernels.PTX}}
	if major, minor := r.Device.Major, r.Device.Minor; kernels.Cubin("pages", major, minor) != nil {
		images = []image{{" from PTX", kernels.PTX}, {" as machine code", func(name string) []byte { return kernels.Cubin(name, major, minor) }}}
	}
	for _, from := range images {
		got, errs, err := results(ctx, cfg, from.of, cases)
		for i := range got {
			c, detail, err := &cases[i], "", errs[i]
			if err == nil {
				apart := c.apart(got[i], want[i])
				detail = fmt.Sprintf("relative distance %.2g", apart)
				if !(apart <= c.limit) {
					err = fmt.Errorf("%s from the interpreter, at most %.2g", detail, c.limit)
				}
			}
			r.check(cfg, "kernels/"+c.name+from.name, err, detail)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// image is a form of the kernels' modules.
type image struct {
	name string
	of   func(module string) []byte
}

// results runs all cases with modules of one form. A case that fails does not keep the next one from
// running, unless the device is lost.
func results(ctx context.Context, cfg *Config, of func(module string) []byte, cases []kernelCase) (out [][]byte, errs []error, err error) {
	err = with(cfg, func(b *bench) {
		b.image = of
		for i := range cases {
			if ctx.Err() != nil {
				b.do(ctx.Err())
				return
			}
			got := cases[i].run(b)
			out, errs, b.err = append(out, got), append(errs, b.err), nil
		}
	})
	return out, errs, err
}

// run returns the last buffer after all launches.
func (c *kernelCase) run(b *bench) (out []byte) {
	var p []cudrv.Ptr
	var host []byte
	defer func() {
		for _, at := range p {
			if at != 0 {
				b.do(b.Free(at))
			}
		}
	}()
	for _, data := range c.buffers {
		at := b.alloc(len(data))
		p = append(p, at)
		if b.err == nil {
			host, b.err = b.HostAlloc(len(data))
		}
		if b.err != nil {
			return nil
		}
		pinned := host
		defer func() { b.do(b.HostFree(pinned)) }()
		copy(host, data)
		b.do(b.CopyIn(b.s, at, host))
	}
	for _, l := range c.launches {
		f := b.function(l.module, l.kernel)
		if b.err == nil && l.shared > 0 {
			b.err = b.SetMaxDynamicShared(f, l.shared)
		}
		if b.err == nil {
			b.err = b.Launch(f, cudrv.Launch{Grid: l.grid, Block: [3]int{l.threads}, SharedBytes: l.shared, Stream: b.s, Args: l.args(p)})
		}
	}
	if b.err == nil {
		b.err = b.CopyOut(b.s, host, p[len(p)-1])
	}
	b.do(b.SyncStream(b.s))
	return slices.Clone(host)
}

// apart returns the relative L2 distance of got from want, 0 if all bits are equal.
func (c *kernelCase) apart(got, want []byte) float64 {
	if bytes.Equal(got, want) {
		return 0
	}
	d, n := 0.0, 0.0
	float := func(b []byte, i int) float64 {
		if c.bf16 {
			return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16))
		}
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
	}
	size := 4
	if c.bf16 {
		size = 2
	}
	for i := range len(want) / size {
		x, y := float(got, i), float(want, i)
		d, n = d+(x-y)*(x-y), n+y*y
	}
	return math.Sqrt(d / n)
}

// normals returns the bytes of n normal values, in bf16 or f32.
func normals(r *rand.Rand, n int, bf16 bool) []byte {
	var b []byte
	for range n {
		bits := math.Float32bits(float32(r.NormFloat64()))
		if bf16 {
			b = binary.LittleEndian.AppendUint16(b, uint16(bits>>16))
		} else {
			b = binary.LittleEndian.AppendUint32(b, bits)
		}
	}
	return b
}

func words(v ...int32) []byte {
	b, _ := binary.Append(nil, binary.LittleEndian, v)
	return b
}

// productLaunch returns a launch of the kernel of products for that many rows.
func productLaunch(rows, columns int, args func(p []cudrv.Ptr) []byte) launch {
	g := kernels.GEMMFor(rows)
	x, y := g.Grid(rows, columns)
	return launch{"gemm", g.Name, [3]int{x, y}, 256, g.SharedBytes, args}
}

func kernelCases(r *rand.Rand) []kernelCase {
	var cases []kernelCase
	for _, rows := range []int{13, 32, 50, 140} {
		const n, k = 160, 512
		product := productLaunch(rows, n, func(p []cudrv.Ptr) []byte {
			return cudrv.Args(p[3], p[0], p[1], p[2], int32(rows), int32(n), int32(k), int32(1), cudrv.Ptr(0))
		})
		cases = append(cases, kernelCase{name: product.kernel, limit: 1e-5, buffers: [][]byte{normals(r, rows*k, true), normals(r, n*k, true), normals(r, n, false), make([]byte, 4*rows*n)},
			launches: []launch{product}})
	}
	for i := range kernels.Forms() {
		cases = append(cases, quantisedCases(r, &kernels.Forms()[i])...)
	}
	const rows, dim = 5, 512
	cases = append(cases,
		exact("layers", "rmsnorm", [3]int{rows}, 256, func(p []cudrv.Ptr) []byte {
			return cudrv.Args(p[2], p[0], p[1], cudrv.Ptr(0), cudrv.Ptr(0), int32(dim), float32(1e-5), cudrv.Ptr(0))
		}, normals(r, rows*dim, false), normals(r, dim, false), make([]byte, 2*rows*dim)),
		kernelCase{name: "gemm32 swiglu", bf16: true, limit: 5e-3, buffers: [][]byte{normals(r, 20*dim, true), normals(r, 64*dim, true), make([]byte, 2*20*32)},
			launches: []launch{productLaunch(20, 64, func(p []cudrv.Ptr) []byte {
				return cudrv.Args(p[2], p[0], p[1], cudrv.Ptr(0), int32(20), int32(64), int32(dim), int32(3), cudrv.Ptr(0))
			})}},
		exact("layers", "embed", [3]int{rows}, 256, func(p []cudrv.Ptr) []byte {
			return cudrv.Args(p[4], p[3], p[0], p[1], p[2], p[2], p[2], int32(dim), int32(0), cudrv.Ptr(0))
		}, normals(r, 20*dim, true), words(3, 19, 0, 7, 7), words(0, 0, 0, 0, 0), words(0), make([]byte, 4*rows*dim)),
		exact("pages", "page_copy", [3]int{1, 4}, 128, func(p []cudrv.Ptr) []byte {
			return cudrv.Args(p[1], p[0], uint64(2*2*16*64/8), int32(16*8), int32(8))
		}, words(0, 2, 5), normals(r, 3*2*2*16*64, true)),
	)
	for _, headDim := range kernels.HeadDims() {
		cases = append(cases, attentionCases(r, headDim)...)
	}
	return slices.Concat(cases, samplingCases(r), placingCases(r), slotCases(r))
}

// quantisedCases has products of weights of form f that the device makes, and a table of them.
func quantisedCases(r *rand.Rand, f *kernels.Form) (cases []kernelCase) {
	const n, k, tokens = 40, 256, 3
	size := f.Bytes(n, k)
	made := launch{f.Module(), f.Kernel("make"), [3]int{(size/4 + 255) / 256}, 256, 0, func(p []cudrv.Ptr) []byte { return cudrv.Args(p[0], uint64(size/4), uint64(7)) }}
	for _, rows := range []int{13, 70} {
		g := kernels.GEMMFor(rows)
		x, y := g.Grid(rows, n)
		product := launch{f.Module(), f.Kernel(g.Name), [3]int{x, y}, 256, f.SharedBytes(g), func(p []cudrv.Ptr) []byte {
			return cudrv.Args(p[3], p[1], p[0], p[2], int32(rows), int32(n), int32(k), int32(1), cudrv.Ptr(0), int32(n))
		}}
		cases = append(cases, kernelCase{name: product.kernel, limit: 1e-5, launches: []launch{made, product},
			buffers: [][]byte{make([]byte, size), normals(r, rows*k, true), normals(r, n, false), make([]byte, 4*rows*n)}})
	}
	widen := launch{f.Module(), f.Kernel("widen"), [3]int{n, 1}, 256, 0, func(p []cudrv.Ptr) []byte { return cudrv.Args(p[1], p[0], int32(k)) }}
	embed := launch{f.Module(), f.Kernel("embed"), [3]int{tokens}, 256, 0, func(p []cudrv.Ptr) []byte {
		return cudrv.Args(p[3], p[2], p[0], p[1], p[2], p[2], p[2], int32(k), int32(0), cudrv.Ptr(0))
	}}
	return append(cases,
		kernelCase{name: widen.kernel, launches: []launch{made, widen}, buffers: [][]byte{make([]byte, size), make([]byte, 2*n*k)}},
		kernelCase{name: embed.kernel, launches: []launch{made, embed}, buffers: [][]byte{make([]byte, size), words(3, 39, 0), words(0, 0, 0), make([]byte, 4*tokens*k)}})
}

// attentionCases has cases of one sequence of 300 positions in successive pages of 16.
func attentionCases(r *rand.Rand, headDim int) []kernelCase {
	const heads, kvHeads, tokens, page = 8, 2, 300, 16 // the heads' width needs no padding
	pages, elements := (tokens+page-1)/page, 2*kvHeads*page*headDim
	table := make([]int32, pages)
	for i := range table {
		table[i] = int32(i)
	}
	q, pool, shared := normals(r, tokens*heads*headDim, true), normals(r, pages*elements, true), kernels.TileBytes(headDim)
	scale := float32(1 / math.Sqrt(float64(headDim)))
	cache := func(p []cudrv.Ptr) []any {
		return []any{p[0], p[1], p[2], uint64(elements), uint64(0), int32(pages), int32(4), int32(kvHeads)}
	}
	with := func(before []any, cache []any, after ...any) []byte {
		return cudrv.Args(append(append(before, cache...), after...)...)
	}
	per := 64 / (heads / kvHeads)
	var items, slots, positions []int32
	for t := range int32(tokens) {
		if t%int32(per) == 0 {
			items = append(items, t, min(int32(per), tokens-t))
		}
		slots, positions = append(slots, 0), append(positions, t)
	}
	prefill := kernelCase{name: fmt.Sprint("attn_prefill_", headDim), bf16: true, limit: 5e-3,
		buffers: [][]byte{q, pool, words(table...), words(items...), words(slots...), words(positions...), make([]byte, 2*tokens*heads*headDim)},
		launches: []launch{{kernels.Attention(headDim), fmt.Sprint("attn_prefill_", headDim), [3]int{len(items) / 2, kvHeads}, 128, shared, func(p []cudrv.Ptr) []byte {
			return with([]any{p[6]}, cache(p), p[3], p[4], p[5], int32(heads), scale)
		}}}}
	// Tokens at the last position: each with items of its own, and sharing the item of their first split.
	cases := []kernelCase{prefill}
	for _, together := range []bool{false, true} {
		const n = 5 // of groups of 4: more than 16 rows
		name := fmt.Sprint("attn_decode_", headDim)
		var items, order, slots, positions []int32
		for t := range int32(n) {
			if !together {
				items = append(items, t, 1, 0, 256)
			}
			items = append(items, t, 1, 1, tokens)
			order, slots, positions = append(order, t), append(slots, 0), append(positions, tokens-1)
		}
		if together {
			items, name = append(items, 0, n, 0, 256), name+" together"
		}
		cases = append(cases, kernelCase{name: name, bf16: true, limit: 5e-3,
			buffers: [][]byte{q, pool, words(table...), words(items...), words(order...), words(slots...), words(positions...), make([]byte, 4*n*2*heads*(headDim+2)), make([]byte, 2*n*heads*headDim)},
			launches: []launch{{kernels.Attention(headDim), fmt.Sprint("attn_decode_", headDim), [3]int{len(items) / 4, kvHeads}, 128, shared, func(p []cudrv.Ptr) []byte {
				return with([]any{p[7]}, cache(p), p[3], p[4], p[5], p[6], int32(heads), int32(2), scale, cudrv.Ptr(0))
			}}, {"merge", "attn_merge", [3]int{n, heads}, 128, 0, func(p []cudrv.Ptr) []byte {
				return cudrv.Args(p[8], p[7], p[6], int32(heads), int32(headDim), int32(2), cudrv.Ptr(0))
			}}}})
	}
	return cases
}
