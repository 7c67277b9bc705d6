package vm

import (
	"errors"
	"slices"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

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
