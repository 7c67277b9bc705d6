package gpucheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/engine/model/random"
)

// quantised compares products of weights that stay quantised with products of the same weights widened to
// bf16, in every bit, on the device. Then it compares bits of the measured model with quantised weights, and
// measures its speed.
func quantised(ctx context.Context, cfg *Config, r *Report) error {
	err := with(cfg, func(b *bench) {
		if major, minor := r.Device.Major, r.Device.Minor; kernels.Cubin("gemm", major, minor) != nil {
			b.image = func(name string) []byte { return kernels.Cubin(name, major, minor) }
		}
		for i := range kernels.Forms() {
			f := &kernels.Forms()[i]
			for _, rows := range []int{13, 65} {
				same := b.widened(f, rows, max(cfg.GEMM, 256))
				if b.err != nil {
					return
				}
				r.check(cfg, fmt.Sprintf("quantised/%v, %d rows", f.Type, rows), same, "the bits of weights in bf16")
			}
		}
	})
	if err != nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	c, of := cfg.Model, gguf.Q4_K
	if c.Hidden%256+c.FFN%256+c.Heads*c.HeadDim%256 > 0 {
		of = gguf.Q8_0
	}
	b, err := openMeasured(cfg, r, random.Zeros(c, of))
	if err != nil {
		return err
	}
	name, form := of.String()+": ", kernels.FormOf(of, c.Hidden)
	m := newMeter(cfg, r, b, form)
	for _, rows := range []int{cfg.Batches[0], cfg.SharedRows} {
		if err == nil {
			err = errors.Join(ctx.Err(), m.decode(fmt.Sprintf("%sdecode, batch %d, %d positions", name, rows, cfg.Context), rows, cfg.Context, 0))
		}
	}
	if err == nil {
		err = m.prefill(name, cfg.Prompt, 0)
	}
	if err = errors.Join(err, b.Close()); err != nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	if b, err = openMeasured(cfg, r, random.Zeros(c, of)); err != nil { // a backend whose batches begin with the first
		return err
	}
	return errors.Join(sameAtSize(ctx, cfg, r, b, "quantised/"+name, []int{cfg.SharedRows}), b.Close())
}

// widened returns an error if a product of random weights of form f, with rows of k, differs from the one of
// these weights in bf16. The errors of the driver are in b.
func (b *bench) widened(f *kernels.Form, rows, k int) error {
	const n = 136
	g, size := kernels.GEMMFor(rows), f.Bytes(n, k)
	x, y := g.Grid(rows, n)
	run := func(module, name string, x, y, shared int, args ...any) {
		fn := b.function(module, name)
		if b.err == nil && shared > 0 {
			b.err = b.SetMaxDynamicShared(fn, shared)
		}
		if b.err == nil {
			b.err = b.Launch(fn, cudrv.Launch{Grid: [3]int{x, y}, Block: [3]int{256}, SharedBytes: shared, Stream: b.s, Args: cudrv.Args(args...)})
		}
	}
	packed, wide, in := b.alloc(size), b.alloc(2*n*k), b.alloc(2*rows*k)
	host := b.host(normals(rand.New(rand.NewPCG(9, uint64(rows))), rows*k, true))
	if b.err == nil {
		b.err = b.CopyIn(b.s, in, host)
	}
	run(f.Module(), f.Kernel("make"), (size/4+255)/256, 1, 0, packed, uint64(size/4), uint64(1))
	run(f.Module(), f.Kernel("widen"), n, (k+2047)/2048, 0, wide, packed, int32(k))
	var results [2][]byte
	for i := range results {
		out := b.alloc(4 * rows * n)
		if i == 0 {
			run("gemm", g.Name, x, y, g.SharedBytes, out, in, wide, cudrv.Ptr(0), int32(rows), int32(n), int32(k), int32(1), cudrv.Ptr(0))
		} else {
			run(f.Module(), f.Kernel(g.Name), x, y, f.SharedBytes(g), out, in, packed, cudrv.Ptr(0), int32(rows), int32(n), int32(k), int32(1), cudrv.Ptr(0), int32(n))
		}
		results[i] = b.host(make([]byte, 4*rows*n))
		if b.err == nil {
			b.err = b.CopyOut(b.s, results[i], out)
		}
	}
	b.do(b.SyncStream(b.s))
	if b.err == nil && (!bytes.Equal(results[0], results[1]) || bytes.Equal(results[0], make([]byte, 4*rows*n))) {
		return errors.New("other bits than with weights in bf16")
	}
	return nil
}

// host returns pinned memory with that content, which ends with the context.
func (b *bench) host(data []byte) (m []byte) {
	if b.err == nil {
		m, b.err = b.HostAlloc(len(data))
	}
	copy(m, data)
	return m
}
