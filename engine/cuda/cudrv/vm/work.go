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
	h := cudrv.Module(c.handle())
	c.modules[h] = m
	return h, nil
}

// Unload implements cudrv.Context.
func (c *Context) Unload(m cudrv.Module) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := lookup(c, "cuModuleUnload", c.modules, m)
	delete(c.modules, m)
	for h, f := range c.functions {
		if f.module == m {
			delete(c.functions, h)
		}
	}
	return err
}

// Function implements cudrv.Context.
func (c *Context) Function(m cudrv.Module, name string) (cudrv.Function, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	module, err := lookup(c, "cuModuleGetFunction", c.modules, m)
	if err != nil {
		return 0, err
	}
	k := module.Kernel(name)
	if k == nil {
		return 0, fail("cuModuleGetFunction", cudrv.CodeNotFound, fmt.Errorf("%q", name))
	}
	h := cudrv.Function(c.handle())
	c.functions[h] = &function{k, m, defaultShared - k.SharedBytes}
	return h, nil
}

// Attributes implements cudrv.Context.
func (c *Context) Attributes(f cudrv.Function) (cudrv.Attributes, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn, err := lookup(c, "cuFuncGetAttribute", c.functions, f)
	if err != nil {
		return cudrv.Attributes{}, err
	}
	return cudrv.Attributes{StaticShared: fn.kernel.SharedBytes, MaxThreads: fn.kernel.MaxThreads}, nil
}

// SetMaxDynamicShared implements cudrv.Context.
func (c *Context) SetMaxDynamicShared(f cudrv.Function, bytes int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn, err := lookup(c, "cuFuncSetAttribute", c.functions, f)
	if err != nil {
		return err
	}
	if bytes < 0 || bytes+fn.kernel.SharedBytes > c.config.MaxSharedBytes {
		return fail("cuFuncSetAttribute", cudrv.CodeInvalidValue, fmt.Errorf("%d bytes of shared memory, at most %d", bytes, c.config.MaxSharedBytes))
	}
	fn.dynamic = bytes
	return nil
}

// Launch implements cudrv.Context.
func (c *Context) Launch(f cudrv.Function, l cudrv.Launch) error {
	const call = "cuLaunchKernel"
	c.mu.Lock()
	defer c.mu.Unlock()
	fn, err := lookup(c, call, c.functions, f)
	if err != nil {
		return err
	}
	if l.SharedBytes > fn.dynamic {
		return fail(call, cudrv.CodeInvalidValue, fmt.Errorf("%s with %d bytes of dynamic shared memory, %d are allowed", fn.kernel.Name, l.SharedBytes, fn.dynamic))
	}
	launch := ptxvm.Launch{Grid: dim(l.Grid), Block: dim(l.Block), SharedBytes: l.SharedBytes, Args: append([]byte(nil), l.Args...)}
	return c.queue(call, l.Stream, func(s ptxvm.Stream) error { return c.m.Launch(s, fn.kernel, launch) })
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

// CopyIn implements cudrv.Context.
func (c *Context) CopyIn(s cudrv.Stream, dst cudrv.Ptr, src []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isPinned(src) {
		return fail("cuMemcpyHtoDAsync", cudrv.CodeInvalidValue, errPinned)
	}
	return c.queue("cuMemcpyHtoDAsync", s, func(id ptxvm.Stream) error { return c.m.CopyIn(id, uint64(dst), src) })
}

// CopyOut implements cudrv.Context.
func (c *Context) CopyOut(s cudrv.Stream, dst []byte, src cudrv.Ptr) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isPinned(dst) {
		return fail("cuMemcpyDtoHAsync", cudrv.CodeInvalidValue, errPinned)
	}
	return c.queue("cuMemcpyDtoHAsync", s, func(id ptxvm.Stream) error { return c.m.CopyOut(id, dst, uint64(src)) })
}

// CopyWithin implements cudrv.Context.
func (c *Context) CopyWithin(s cudrv.Stream, dst, src cudrv.Ptr, n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue("cuMemcpyDtoDAsync", s, func(id ptxvm.Stream) error { return c.m.CopyWithin(id, uint64(dst), uint64(src), n) })
}

// Fill implements cudrv.Context.
func (c *Context) Fill(s cudrv.Stream, dst cudrv.Ptr, value byte, n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue("cuMemsetD8Async", s, func(id ptxvm.Stream) error { return c.m.Set(id, uint64(dst), value, n) })
}

// Fill32 implements cudrv.Context.
func (c *Context) Fill32(s cudrv.Stream, dst cudrv.Ptr, value uint32, n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if dst%4 != 0 {
		return fail("cuMemsetD32Async", cudrv.CodeInvalidValue, errors.New("vm: the address is not a multiple of 4"))
	}
	return c.queue("cuMemsetD32Async", s, func(id ptxvm.Stream) error { return c.m.Set32(id, uint64(dst), value, n) })
}
