package vm

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

// Load implements cudrv.Context. It takes PTX alone.
func (c *Context) Load(image []byte) (cudrv.Module, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, fail("cuModuleLoadDataEx", cudrv.CodeInvalidValue, errClosed)
	}
	m, err := c.driver.decode(image)
	if err != nil {
		return 0, fail("cuModuleLoadDataEx", cudrv.CodeInvalidPTX, err)
	}
	return add(c, c.modules, m), nil
}

// Function implements cudrv.Context.
func (c *Context) Function(m cudrv.Module, name string) (f cudrv.Function, err error) {
	const call = "cuModuleGetFunction"
	err = on(c, call, c.modules, m, func(module *ptxvm.Module) error {
		k := module.Kernel(name)
		if k == nil {
			return fail(call, cudrv.CodeNotFound, fmt.Errorf("%q", name))
		}
		f = add(c, c.functions, &function{k, defaultShared - k.SharedBytes})
		return nil
	})
	return f, err
}

// SetMaxDynamicShared implements cudrv.Context.
func (c *Context) SetMaxDynamicShared(f cudrv.Function, bytes int) error {
	return on(c, "cuFuncSetAttribute", c.functions, f, func(fn *function) error {
		if bytes < 0 || bytes+fn.kernel.SharedBytes > c.config.MaxSharedBytes {
			return fmt.Errorf("vm: %d bytes of shared memory, at most %d", bytes, c.config.MaxSharedBytes)
		}
		fn.dynamic = bytes
		return nil
	})
}

// Launch implements cudrv.Context.
func (c *Context) Launch(f cudrv.Function, l cudrv.Launch) error {
	const call = "cuLaunchKernel"
	return on(c, call, c.functions, f, func(fn *function) error {
		if l.SharedBytes > fn.dynamic {
			return fmt.Errorf("vm: %s with %d bytes of dynamic shared memory, %d are allowed", fn.kernel.Name, l.SharedBytes, fn.dynamic)
		}
		launch := ptxvm.Launch{Grid: dim(l.Grid), Block: dim(l.Block), SharedBytes: l.SharedBytes, Args: append([]byte(nil), l.Args...)}
		return c.queue(call, l.Stream, func(s ptxvm.Stream) error { return c.m.Launch(s, fn.kernel, launch) })
	})
}

func dim(d [3]int) ptxvm.Dim { return ptxvm.Dim{X: d[0], Y: d[1], Z: d[2]} }

// queue queues work on a stream, or appends it to the graph that the stream captures.
func (c *Context) queue(call string, s cudrv.Stream, work func(s ptxvm.Stream) error) error {
	st, err := lookup(c, call, c.streams, s)
	if err != nil {
		return err
	}
	if st.capture != nil {
		st.capture.work = append(st.capture.work, work)
		return nil
	}
	return check(call, work(st.id))
}

// copy queues a copy or a fill. host is the host memory that it uses.
func (c *Context) copy(call string, s cudrv.Stream, work func(s ptxvm.Stream) error, host ...[]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range host {
		if !c.isPinned(b) {
			return fail(call, cudrv.CodeInvalidValue, errPinned)
		}
	}
	return c.queue(call, s, work)
}

// CopyIn implements cudrv.Context.
func (c *Context) CopyIn(s cudrv.Stream, dst cudrv.Ptr, src []byte) error {
	return c.copy("cuMemcpyHtoDAsync", s, func(id ptxvm.Stream) error { return c.m.CopyIn(id, uint64(dst), src) }, src)
}

// CopyOut implements cudrv.Context.
func (c *Context) CopyOut(s cudrv.Stream, dst []byte, src cudrv.Ptr) error {
	return c.copy("cuMemcpyDtoHAsync", s, func(id ptxvm.Stream) error { return c.m.CopyOut(id, dst, uint64(src)) }, dst)
}

// CopyWithin implements cudrv.Context.
func (c *Context) CopyWithin(s cudrv.Stream, dst, src cudrv.Ptr, n int) error {
	return c.copy("cuMemcpyDtoDAsync", s, func(id ptxvm.Stream) error { return c.m.CopyWithin(id, uint64(dst), uint64(src), n) })
}

// Fill implements cudrv.Context.
func (c *Context) Fill(s cudrv.Stream, dst cudrv.Ptr, value byte, n int) error {
	return c.copy("cuMemsetD8Async", s, func(id ptxvm.Stream) error { return c.m.Set(id, uint64(dst), value, n) })
}

// Fill32 implements cudrv.Context.
func (c *Context) Fill32(s cudrv.Stream, dst cudrv.Ptr, value uint32, n int) error {
	if dst%4 != 0 {
		return fail("cuMemsetD32Async", cudrv.CodeInvalidValue, errors.New("vm: the address is not a multiple of 4"))
	}
	return c.copy("cuMemsetD32Async", s, func(id ptxvm.Stream) error { return c.m.Set32(id, uint64(dst), value, n) })
}
