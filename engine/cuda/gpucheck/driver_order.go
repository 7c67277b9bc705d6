package gpucheck

import (
	"errors"
	"runtime"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
)

// streams checks that events order streams: work after Wait sees earlier writes.
func streams(b *probe) {
	w := newTableWriter(b, 3, 9)
	other := must(b, b.NewStream)
	e := must(b, b.NewEvent)
	w.launch(b.s, w.table)
	b.ok(b.Record(e, b.s))
	b.ok(b.Wait(other, e))
	h := b.host(256)
	b.ok(b.CopyOut(other, h, w.table))
	b.ok(b.SyncStream(other))
	if h[12] != 9 {
		b.t.Errorf("the other stream read %v", h[:16])
	}
}

func events(b *probe) {
	w := newTableWriter(b, 2, 8)
	before, after := must(b, b.NewEvent), must(b, b.NewEvent)
	b.ok(b.SyncEvent(after)) // an event without Record
	b.ok(b.Record(before, b.s))
	w.launch(b.s, w.table)
	b.ok(b.Record(after, b.s))
	b.ok(b.SyncEvent(after))
	if ns, err := b.Elapsed(before, after); err != nil || ns < 0 {
		b.t.Errorf("%d ns between the events: %v", ns, err)
	}
	if got := b.read(w.table, 3); got[2] != 8 {
		b.t.Errorf("the table is %v", got)
	}
}

// graphs checks that capturing records work without running it, and that each launch runs it.
func graphs(b *probe) {
	w := newTableWriter(b, 6, 11)
	b.ok(b.BeginCapture(b.s))
	b.fails("waiting for a stream that captures", b.SyncStream(b.s), cudrv.ErrNotAllowed)
	g, err := b.EndCapture(b.s)
	// The failed wait ends the capture on some drivers: begin again.
	if err == nil {
		b.ok(b.DestroyGraph(g))
	}
	b.ok(b.BeginCapture(b.s))
	w.launch(b.s, w.table)
	b.ok(b.Fill32(b.s, w.table, 5, 2))
	g, err = b.EndCapture(b.s)
	b.ok(err)
	if got := b.read(w.table, 7); got[6] != 0 || got[0] != 0 {
		b.t.Errorf("capturing ran the work: %v", got)
	}
	x, err := b.Instantiate(g)
	b.ok(err)
	b.ok(b.DestroyGraph(g))
	for range 2 {
		b.ok(b.Fill(b.s, w.table, 0, 256))
		b.ok(b.LaunchGraph(x, b.s))
		if got := b.read(w.table, 7); got[6] != 11 || got[1] != 5 || got[2] != 0 {
			b.t.Errorf("after a launch of the graph: %v", got)
		}
	}
	b.ok(b.DestroyGraphExec(x))
}

func invalid(b *probe) {
	f := b.function("pages", "table_write")
	args := cudrv.Args(b.put(0), b.put(0, 0, 0), int32(0), int32(1), cudrv.Ptr(0))
	b.fails("too many threads", b.Launch(f, cudrv.Launch{Block: [3]int{2048}, Stream: b.s, Args: args}), cudrv.ErrInvalid)
	_, err := b.Alloc(0)
	b.fails("no bytes", err, cudrv.ErrInvalid)
	_, err = b.HostAlloc(0)
	b.fails("no bytes of host memory", err, cudrv.ErrInvalid)
	b.ok(b.SyncStream(b.s)) // the stream still works
}

// lostAfterFault checks that all work fails after an access out of bounds.
func lostAfterFault(b *probe) {
	w := newTableWriter(b, 3, 9)
	w.launch(b.s, 1<<40)
	b.fails("a write to nowhere", b.SyncStream(b.s), cudrv.ErrLost)
	_, err := b.Alloc(256)
	b.fails("Alloc after it", err, cudrv.ErrLost)
	b.fails("SyncStream after it", b.SyncStream(b.s), cudrv.ErrLost)
}

// capturing checks what may happen while a stream captures: another thread allocates memory, and work
// runs on the default stream, which another part of the process may use.
func capturing(b *probe) {
	p := b.alloc(64)
	b.ok(b.BeginCapture(b.s))
	b.ok(b.Fill(b.s, p, 1, 64))
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := b.Bind()
		if err == nil {
			var h []byte
			if h, err = b.HostAlloc(64); err == nil {
				err = b.HostFree(h)
			}
		}
		done <- errors.Join(err, b.Fill(0, p, 2, 32))
	}()
	if err := <-done; err != nil {
		b.t.Errorf("on another thread, while a stream captures: %v", err)
	}
	g, err := b.EndCapture(b.s)
	b.ok(err)
	b.ok(b.DestroyGraph(g))
	b.ok(b.SyncStream(0))
	if got := b.read(p, 1); got[0] != 0x02020202 {
		b.t.Errorf("after work on the default stream: %#x", got[0])
	}
}
