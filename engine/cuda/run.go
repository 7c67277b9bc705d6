package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/internal/cudamem"
	"github.com/coppice-llm/coppice/kv"
)

// place holds the resources of one pending job: an event, and for a batch pinned memory for input and
// output, which the launching goroutine allocates at first use.
type place struct {
	event   cudrv.Event
	in, out []byte
}

// newPlaces returns n places, each with an event.
func newPlaces(ctx cudrv.Context, n int) (chan *place, error) {
	places := make(chan *place, n)
	for range n {
		e, err := ctx.NewEvent()
		if err != nil {
			return nil, err
		}
		places <- &place{event: e}
	}
	return places, nil
}

// outcome is a copy of the parts of a plan that the waiting goroutine needs. The planner reuses the
// plan for the next batch.
type outcome struct {
	rows int
	logitLists
	promptLists
	logits  int // bytes of logits to copy to the host, 0 if no digest is requested
	stats   engine.StepStats
	refused error // fails all rows: the device had too little memory for the step
}

func (o *outcome) promptNormsAt() int  { return o.logitsAt() + o.logits }
func (o *outcome) promptPickedAt() int { return o.promptNormsAt() + normBytes*o.sources.n }
func (o *outcome) promptTopsAt() int   { return o.promptPickedAt() + 4*o.sources.n }
func (o *outcome) bytes() int          { return o.promptTopsAt() + topBytes*o.promptTop*o.sources.n }

// Offsets in place.out: failed by row; drawn, norms, tops and logits by sample; norms,
// picked and tops by prompt token.
func (o *outcome) drawnAt() int  { return 4 * o.rows }
func (o *outcome) normsAt() int  { return o.drawnAt() + drawnBytes*len(o.samples) }
func (o *outcome) topsAt() int   { return o.normsAt() + normBytes*len(o.samples) }
func (o *outcome) logitsAt() int { return o.topsAt() + topBytes*max(o.top, 1)*len(o.samples) }

// launch is the goroutine that plans and queues jobs. It owns the device, except for the waits in
// wait.
func (b *Backend) launch() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer func() {
		for _, c := range b.queued {
			close(c)
		}
	}()
	p := &planner{device: b.dev}
	err := lostError("bind", b.dev.ctx.Bind())
	for queued := range b.Jobs() {
		j := &job{Job: queued}
		if !b.watch.take(j) {
			b.Finish(queued, nil, lostError("step", ErrStuck))
			continue
		}
		switch {
		case b.Aborted():
			b.finish(j, engine.ErrClosed)
			continue
		case err == nil:
			j.from = b.dev.places(j)
			j.place = <-j.from
			err = b.queue(p, j)
		}
		if err != nil {
			b.finish(j, err) // all later jobs fail too
			continue
		}
		b.queued[j.stream()] <- j
	}
}

// queue queues the work of job j on its stream, and records the job's event after it.
func (b *Backend) queue(p *planner, j *job) error {
	d, pl := b.dev, j.place
	if j.Batch != nil {
		if !b.watch.read() {
			return lostError("step", ErrStuck)
		}
		p.make(j.Batch)
		b.watch.stopRead()
	}
	if j.Batch == nil {
		c := cudamem.Copy{ID: uint64(j.Move.ID), ToDevice: j.Move.To == kv.TierDevice, Pages: j.Move.Pages, Memory: j.Memory, Done: pl.event}
		return lostError("move", d.pool.Begin(c, d.stream))
	}
	for _, id := range p.after {
		if err := d.pool.Await(d.stream, uint64(id)); err != nil {
			return lostError("step", err)
		}
	}
	if err := b.step(p, j); errors.Is(err, cudrv.ErrMemory) {
		if !b.watch.read() {
			return lostError("step", ErrStuck)
		}
		p.giveUp(j.Batch)
		b.watch.stopRead()
		j.plan.refused = fmt.Errorf("%w: %w", engine.ErrMemory, err)
		d.cfg.Log.Warn("a step fails for lack of GPU memory", "error", err)
	} else if err != nil {
		return lostError("step", err)
	} else {
		p.redo = redo{}
	}
	return lostError("record", d.ctx.Record(pl.event, d.stream))
}

// step queues the batch that p has planned: the upload of its data, its kernels, and the copies of
// its results.
func (b *Backend) step(p *planner, j *job) error {
	d, pl, plan := b.dev, j.place, &p.plan
	n := plan.moreAt() + len(plan.more)
	d.uploaded = n
	if err := d.growMeta(n); err != nil {
		return err
	}
	if err := d.growHost(&pl.in, n); err != nil {
		return err
	}
	if n > 0 {
		copy(pl.in, plan.data)
		copy(pl.in[plan.moreAt():], plan.more)
		if err := d.ctx.CopyIn(d.stream, d.meta, pl.in[:n]); err != nil {
			return err
		}
	}
	o := &j.plan
	*o = outcome{rows: plan.rows, logitLists: plan.logitLists, promptLists: plan.promptLists, stats: plan.stats}
	o.samples, o.spans = slices.Clone(o.samples), slices.Clone(o.spans)
	if o.digests {
		o.logits = 4 * d.model.Vocab * len(o.samples)
	}
	if err := d.growHost(&pl.out, o.bytes()); err != nil {
		return err
	}
	var logits []byte
	if !plan.graph {
		logits = pl.out[o.logitsAt():][:o.logits]
	}
	l := launcher{device: d, p: plan}
	if err := l.step(logits); err != nil {
		return err
	}
	o.stats.GraphFailures = plan.stats.GraphFailures
	return b.fetch(pl, o, logits == nil)
}

// fetch queues the copies of the results that o describes to the place's pinned memory, with the
// logits if they are not there yet.
func (b *Backend) fetch(pl *place, o *outcome, logits bool) error {
	d, r := b.dev, &b.dev.room
	if o.rows == 0 {
		return nil
	}
	var err error
	get := func(at, n int, from cudrv.Ptr) {
		if err == nil && n > 0 {
			err = d.ctx.CopyOut(d.stream, pl.out[at:at+n], from)
		}
	}
	want := len(o.samples)
	get(0, 4*o.rows, r.failed)
	get(o.drawnAt(), drawnBytes*want, r.drawn)
	if logits {
		get(o.logitsAt(), o.logits, r.logits)
	}
	get(o.promptNormsAt(), normBytes*o.sources.n, r.prompt.norms)
	get(o.promptPickedAt(), 4*o.sources.n, r.prompt.picked)
	get(o.promptTopsAt(), topBytes*o.promptTop*o.sources.n, r.prompt.tops)
	if o.top >= 0 {
		get(o.normsAt(), normBytes*want, r.norms)
		get(o.topsAt(), topBytes*o.top*want, r.tops) // also what rows did not ask for: one copy, not one for each row
	}
	return err
}

// growHost makes *b hold at least n bytes of pinned memory; its contents are lost. No pending job
// may use b.
func (d *device) growHost(b *[]byte, n int) error {
	if n <= len(*b) {
		return nil
	}
	if len(*b) > 0 {
		if err := d.ctx.HostFree(*b); err != nil {
			return err
		}
	}
	var err error
	*b, err = d.ctx.HostAlloc(n + n/2)
	return err
}

// wait is a goroutine that waits for the jobs of one stream and completes their tickets. The last
// such goroutine to end closes the device.
func (b *Backend) wait(queued <-chan *job) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	bound := b.dev.ctx.Bind()
	for j := range queued {
		// Also after Close: until then the device uses the batch's pinned memory, and the caller's host pages.
		err := lostError("step", errors.Join(bound, b.dev.ctx.SyncEvent(j.place.event)))
		if b.Aborted() {
			err = engine.ErrClosed
		}
		b.finish(j, err)
	}
	if b.waiting.Add(-1) == 0 {
		b.closing = b.dev.ctx.Close()
		runtime.KeepAlive(b.dev.cfg.Pool.Owner)
		close(b.done)
	}
}

// lostError wraps an error of the driver in the type that package engine requires; nil stays nil.
func lostError(op string, err error) error {
	if err == nil {
		return nil
	}
	return &engine.Error{Backend: "cuda", Op: op, Err: err}
}
