package vm

import (
	"errors"
	"fmt"
	"slices"

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

// NewStream implements cudrv.Context.
func (c *Context) NewStream() (cudrv.Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return add(c, c.streams, &stream{id: c.m.NewStream()}), nil
}

// idle returns a function that calls do for a stream, which must not be capturing.
func idle(do func(ptxvm.Stream) error) func(*stream) error {
	return func(s *stream) error {
		if s.capture != nil {
			return errCapture
		}
		return do(s.id)
	}
}

// SyncStream implements cudrv.Context.
func (c *Context) SyncStream(s cudrv.Stream) error {
	return on(c, "cuStreamSynchronize", c.streams, s, idle(func(id ptxvm.Stream) error { return c.m.SyncStream(id) }))
}

// NewEvent implements cudrv.Context.
func (c *Context) NewEvent() (cudrv.Event, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return add(c, c.events, c.m.NewEvent()), nil
}

// order calls do for an event and a stream, which must not be capturing.
func (c *Context) order(call string, e cudrv.Event, s cudrv.Stream, do func(ptxvm.Event, ptxvm.Stream) error) error {
	return on(c, call, c.events, e, func(event ptxvm.Event) error {
		stream, err := lookup(c, call, c.streams, s)
		if err != nil {
			return err
		}
		return idle(func(id ptxvm.Stream) error { return do(event, id) })(stream)
	})
}

// Record implements cudrv.Context.
func (c *Context) Record(e cudrv.Event, s cudrv.Stream) error {
	return c.order("cuEventRecord", e, s, func(event ptxvm.Event, id ptxvm.Stream) error { return c.m.Record(event, id) })
}

// Wait implements cudrv.Context.
func (c *Context) Wait(s cudrv.Stream, e cudrv.Event) error {
	return c.order("cuStreamWaitEvent", e, s, func(event ptxvm.Event, id ptxvm.Stream) error { return c.m.Wait(id, event) })
}

// SyncEvent implements cudrv.Context.
func (c *Context) SyncEvent(e cudrv.Event) error {
	return on(c, "cuEventSynchronize", c.events, e, func(event ptxvm.Event) error { return c.m.SyncEvent(event) })
}

// Elapsed implements cudrv.Context. The interpreter has no time: it is 0.
func (c *Context) Elapsed(from, to cudrv.Event) (int64, error) {
	const call = "cuEventElapsedTime"
	var errs [2]error
	for i, e := range []cudrv.Event{from, to} {
		errs[i] = on(c, call, c.events, e, func(event ptxvm.Event) error {
			done, err := c.m.Passed(event)
			if err == nil && !done {
				err = fail(call, cudrv.CodeNotReady, errors.New("vm: the event is not done"))
			}
			return err
		})
	}
	return 0, errors.Join(errs[:]...)
}

// BeginCapture implements cudrv.Context.
func (c *Context) BeginCapture(s cudrv.Stream) error {
	return on(c, "cuStreamBeginCapture", c.streams, s, func(st *stream) error {
		if st.capture != nil {
			return errCapture
		}
		st.capture = &graph{}
		return nil
	})
}

// EndCapture implements cudrv.Context.
func (c *Context) EndCapture(s cudrv.Stream) (g cudrv.Graph, err error) {
	const call = "cuStreamEndCapture"
	err = on(c, call, c.streams, s, func(st *stream) error {
		if st.capture == nil {
			return fail(call, cudrv.CodeCaptureForbidden, errors.New("vm: the stream is not capturing"))
		}
		g, st.capture = add(c, c.graphs, st.capture), nil
		return nil
	})
	return g, err
}

// Instantiate implements cudrv.Context.
func (c *Context) Instantiate(g cudrv.Graph) (x cudrv.GraphExec, err error) {
	err = on(c, "cuGraphInstantiate", c.graphs, g, func(gr *graph) error {
		x = add(c, c.execs, &graph{slices.Clone(gr.work)})
		return nil
	})
	return x, err
}

// LaunchGraph implements cudrv.Context.
func (c *Context) LaunchGraph(x cudrv.GraphExec, s cudrv.Stream) error {
	const call = "cuGraphLaunch"
	return on(c, call, c.execs, x, func(gr *graph) error {
		for _, w := range gr.work {
			if err := c.queue(call, s, w); err != nil {
				return err
			}
		}
		return nil
	})
}

// DestroyGraph implements cudrv.Context.
func (c *Context) DestroyGraph(g cudrv.Graph) error {
	return destroy(c, "cuGraphDestroy", c.graphs, g)
}

// DestroyGraphExec implements cudrv.Context.
func (c *Context) DestroyGraphExec(x cudrv.GraphExec) error {
	return destroy(c, "cuGraphExecDestroy", c.execs, x)
}
