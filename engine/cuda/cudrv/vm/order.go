package vm

import (
	"errors"
	"slices"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

// errCapture reports a wait for a stream that is capturing.
var errCapture = errors.New("vm: the stream is capturing")

// NewStream implements cudrv.Context.
func (c *Context) NewStream() (cudrv.Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := cudrv.Stream(c.handle())
	c.streams[h] = &stream{id: c.m.NewStream()}
	return h, nil
}

// DestroyStream implements cudrv.Context.
func (c *Context) DestroyStream(s cudrv.Stream) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := lookup(c, "cuStreamDestroy", c.streams, s)
	delete(c.streams, s)
	return err
}

// idle returns a stream that must not be capturing.
func (c *Context) idle(call string, s cudrv.Stream) (ptxvm.Stream, error) {
	st, err := lookup(c, call, c.streams, s)
	if err != nil {
		return 0, err
	}
	if st.capture != nil {
		return 0, fail(call, cudrv.CodeCaptureForbidden, errCapture)
	}
	return st.id, nil
}

// StreamDone implements cudrv.Context.
func (c *Context) StreamDone(s cudrv.Stream) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, err := c.idle("cuStreamQuery", s)
	if err != nil {
		return false, err
	}
	done, err := c.m.QueryStream(id)
	return done, check("cuStreamQuery", err)
}

// SyncStream implements cudrv.Context.
func (c *Context) SyncStream(s cudrv.Stream) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, err := c.idle("cuStreamSynchronize", s)
	if err != nil {
		return err
	}
	return check("cuStreamSynchronize", c.m.SyncStream(id))
}

// NewEvent implements cudrv.Context.
func (c *Context) NewEvent() (cudrv.Event, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := cudrv.Event(c.handle())
	c.events[h] = c.m.NewEvent()
	return h, nil
}

// DestroyEvent implements cudrv.Context.
func (c *Context) DestroyEvent(e cudrv.Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := lookup(c, "cuEventDestroy", c.events, e)
	delete(c.events, e)
	return err
}

// Record implements cudrv.Context.
func (c *Context) Record(e cudrv.Event, s cudrv.Stream) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ev, err := lookup(c, "cuEventRecord", c.events, e)
	if err != nil {
		return err
	}
	id, err := c.idle("cuEventRecord", s)
	if err != nil {
		return err
	}
	return check("cuEventRecord", c.m.Record(ev, id))
}

// Wait implements cudrv.Context.
func (c *Context) Wait(s cudrv.Stream, e cudrv.Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ev, err := lookup(c, "cuStreamWaitEvent", c.events, e)
	if err != nil {
		return err
	}
	id, err := c.idle("cuStreamWaitEvent", s)
	if err != nil {
		return err
	}
	return check("cuStreamWaitEvent", c.m.Wait(id, ev))
}

// EventDone implements cudrv.Context.
func (c *Context) EventDone(e cudrv.Event) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ev, err := lookup(c, "cuEventQuery", c.events, e)
	if err != nil {
		return false, err
	}
	done, err := c.m.Query(ev)
	return done, check("cuEventQuery", err)
}

// SyncEvent implements cudrv.Context.
func (c *Context) SyncEvent(e cudrv.Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ev, err := lookup(c, "cuEventSynchronize", c.events, e)
	if err != nil {
		return err
	}
	return check("cuEventSynchronize", c.m.SyncEvent(ev))
}

// Elapsed implements cudrv.Context. The interpreter has no time: it is 0.
func (c *Context) Elapsed(from, to cudrv.Event) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range []cudrv.Event{from, to} {
		ev, err := lookup(c, "cuEventElapsedTime", c.events, e)
		if err != nil {
			return 0, err
		}
		if done, err := c.m.Passed(ev); err != nil || !done {
			return 0, errors.Join(check("cuEventElapsedTime", err), fail("cuEventElapsedTime", cudrv.CodeNotReady, errors.New("vm: the event is not done")))
		}
	}
	return 0, nil
}

// BeginCapture implements cudrv.Context.
func (c *Context) BeginCapture(s cudrv.Stream) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.idle("cuStreamBeginCapture", s); err != nil {
		return err
	}
	c.streams[s].capture = &graph{}
	return nil
}

// EndCapture implements cudrv.Context.
func (c *Context) EndCapture(s cudrv.Stream) (cudrv.Graph, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st, err := lookup(c, "cuStreamEndCapture", c.streams, s)
	if err != nil {
		return 0, err
	}
	if st.capture == nil {
		return 0, fail("cuStreamEndCapture", cudrv.CodeCaptureForbidden, errors.New("vm: the stream is not capturing"))
	}
	h := cudrv.Graph(c.handle())
	c.graphs[h], st.capture = st.capture, nil
	return h, nil
}

// Instantiate implements cudrv.Context.
func (c *Context) Instantiate(g cudrv.Graph) (cudrv.GraphExec, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gr, err := lookup(c, "cuGraphInstantiate", c.graphs, g)
	if err != nil {
		return 0, err
	}
	h := cudrv.GraphExec(c.handle())
	c.execs[h] = &graph{slices.Clone(gr.work)}
	return h, nil
}

// LaunchGraph implements cudrv.Context.
func (c *Context) LaunchGraph(x cudrv.GraphExec, s cudrv.Stream) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	gr, err := lookup(c, "cuGraphLaunch", c.execs, x)
	if err != nil {
		return err
	}
	for _, w := range gr.work {
		if err := c.queue("cuGraphLaunch", s, w); err != nil {
			return err
		}
	}
	return nil
}

// DestroyGraph implements cudrv.Context.
func (c *Context) DestroyGraph(g cudrv.Graph) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := lookup(c, "cuGraphDestroy", c.graphs, g)
	delete(c.graphs, g)
	return err
}

// DestroyGraphExec implements cudrv.Context.
func (c *Context) DestroyGraphExec(x cudrv.GraphExec) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := lookup(c, "cuGraphExecDestroy", c.execs, x)
	delete(c.execs, x)
	return err
}
