package gpucheck

import (
	"context"
	"errors"
	"runtime"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/kernels"
)

// bench has a context, a stream, and two events around the timed work. After an error it does nothing.
type bench struct {
	cudrv.Context
	s        cudrv.Stream
	from, to cudrv.Event
	image    func(module string) []byte // default: PTX
	loaded   map[string]cudrv.Module
	err      error
}

// with runs do on the device, on one OS thread.
func with(cfg *Config, do func(b *bench)) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := cfg.Driver.Open(cfg.Device)
	if err != nil {
		return err
	}
	b := &bench{Context: c, image: kernels.PTX, loaded: map[string]cudrv.Module{}}
	b.s, b.err = c.NewStream()
	for _, e := range []*cudrv.Event{&b.from, &b.to} {
		if b.err == nil {
			*e, b.err = c.NewEvent()
		}
	}
	if b.err == nil {
		do(b)
	}
	return errors.Join(b.err, c.Close())
}

func (b *bench) do(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *bench) alloc(n int) (p cudrv.Ptr) {
	if b.err == nil {
		p, b.err = b.Alloc(n)
	}
	if b.err == nil {
		b.err = b.Fill(b.s, p, 0, n)
	}
	return p
}

func (b *bench) function(module, name string) (f cudrv.Function) {
	if b.err != nil {
		return 0
	}
	m, ok := b.loaded[module]
	if !ok {
		m, b.err = b.Load(b.image(module))
	}
	if b.err == nil {
		b.loaded[module] = m
		f, b.err = b.Function(m, name)
	}
	return f
}

// seconds runs work once to warm up, then n times, and returns the mean device time of a run.
func (b *bench) seconds(n int, work func() error) float64 {
	b.do(work())
	b.do(b.Record(b.from, b.s))
	for range n {
		if b.err != nil {
			return 0
		}
		b.err = work()
	}
	b.do(b.Record(b.to, b.s))
	b.do(b.SyncStream(b.s))
	if b.err != nil {
		return 0
	}
	ns, err := b.Elapsed(b.from, b.to)
	b.err = err
	return float64(ns) / 1e9 / float64(n)
}

// ceilings measures the device's rates of copies, launches and products.
func ceilings(_ context.Context, cfg *Config, r *Report) error {
	c, size := &r.Ceilings, float64(cfg.CopyBytes)
	return with(cfg, func(b *bench) {
		x, y := b.alloc(cfg.CopyBytes), b.alloc(cfg.CopyBytes)
		host, err := b.HostAlloc(cfg.CopyBytes)
		b.do(err)
		if b.err != nil {
			return
		}
		c.CopyBytesPerSecond = rate(2*size, b.seconds(8, func() error { return b.CopyWithin(b.s, y, x, cfg.CopyBytes) }))
		c.ToDevice = rate(size, b.seconds(4, func() error { return b.CopyIn(b.s, x, host) }))
		c.ToHost = rate(size, b.seconds(4, func() error { return b.CopyOut(b.s, host, x) }))
		b.do(b.HostFree(host))
		table, entries := b.alloc(256), b.alloc(256)
		write := b.function("pages", "table_write")
		args := cudrv.Args(table, entries, int32(1), int32(64), cudrv.Ptr(0))
		c.LaunchSeconds = b.seconds(256, func() error { return b.Launch(write, cudrv.Launch{Block: [3]int{256}, Stream: b.s, Args: args}) })
		n := cfg.GEMM
		product := b.function("gemm", "gemm128")
		out, in, w := b.alloc(4*n*n), b.alloc(2*n*n), b.alloc(2*n*n)
		args = cudrv.Args(out, in, w, cudrv.Ptr(0), int32(n), int32(n), int32(n), int32(1), cudrv.Ptr(0))
		tiles := (n + 127) / 128
		c.ProductFlopsPerSec = rate(2*float64(n)*float64(n)*float64(n), b.seconds(4, func() error {
			return b.Launch(product, cudrv.Launch{Grid: [3]int{tiles, tiles}, Block: [3]int{256}, Stream: b.s, Args: args})
		}))
	})
}
