package schedtest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// rig connects a scheduler, a simulated backend and a pool on one virtual clock, with checkers.
// Its methods are the actions of a shell; a world or a script decides when to call them.
type rig struct {
	opts Options

	clock  *sim.Clock
	info   engine.Info
	cfg    scheduler.Config  // as the checkers assume it
	cache  *radixcache.Cache // read only; nil if there is none
	sched  *scheduler.Scheduler
	oracle *sim.Backend
	device engine.Backend // oracle, or a wrapper with a planted bug
	pool   *mempool.Pool
	lower  lower
	mail   mail
	rival  *rival // nil: no other scheduler leases from the pool

	flights []*flight // submitted, oldest first
	plans   int       // number of plans made
	lastSeq uint64    // Seq of the latest plan
	lost    error     // the error that ended the device; no more plans are made
	closed  bool      // everything has ended, except messages in flight

	book      book
	checkers  []checker
	progress  *progress // one of the checkers, as are the next three
	mirror    *mirror
	failed    *failedKV
	retention *retention
	bug       bug
	sum       digest
	report    Report

	log      *[]kv.Event                      // collects the events for a script; may be nil
	listener func(*sample, *scheduler.Output) // called with each output; may be nil

	out    []scheduler.Output // scratch, as are the next two
	events []kv.Event
	rows   []rowView
}

// newRig makes a rig with a simulated backend of the configuration device, and with a
// scheduler of the configuration cfg, in which it fills in defaults.
func newRig(o Options, b bug, device sim.Config, cfg scheduler.Config) (*rig, error) {
	r := &rig{opts: o, clock: device.Clock, bug: b}
	var err error
	if r.oracle, err = sim.Open(device); err != nil {
		return nil, fmt.Errorf("schedtest: opening the backend: %w", err)
	}
	r.device, r.info = r.oracle, r.oracle.Info()
	cfg.Vocabulary = newVocabulary(r.info.Vocab)
	cfg = cfg.WithDefaults(r.info)
	if r.sched, err = scheduler.New(b.config(cfg, &r.info), r.info); err != nil {
		return nil, fmt.Errorf("schedtest: %w", err)
	}
	r.cfg, r.cache = cfg, r.sched.Cache()
	if r.pool, err = mempool.NewPool(r.info.NumPages); err != nil {
		return nil, fmt.Errorf("schedtest: %w", err)
	}
	if cfg.SharePages > 0 {
		if r.rival, err = newRival(r); err != nil {
			return nil, fmt.Errorf("schedtest: %w", err)
		}
	}
	r.lower = newLower(r, cfg.Tiers)
	r.book = newBook(r.info.MaxSlots)
	r.progress, r.mirror, r.failed, r.lower.ledger = &progress{watcher: watcher{r, "progress"}}, newMirror(r), newFailedKV(r), newTierLedger(r)
	r.retention = &retention{
		watcher: watcher{r, "retention"}, released: map[radixcache.NodeID]uint64{},
		stale: map[radixcache.NodeID]int{}, ends: map[kv.PageID]bool{},
	}
	r.lower.parks = newParks(r, newStream(o.Seed, "parks"))
	r.checkers = newCheckers(r)
	b.begin(r)
	return r, nil
}

// fail ends the world: it panics with a *Failure, which names the checker and the fault.
func (r *rig) fail(checker, format string, args ...any) {
	panic(r.failure(checker, fmt.Sprintf(format, args...)))
}

func (r *rig) failure(checker, what string) *Failure {
	f := &Failure{Checker: checker, Options: r.opts, Step: r.plans, What: oneLine(what)}
	r.note("%v", f)
	return f
}

// note writes a line to the trace.
func (r *rig) note(format string, args ...any) {
	if r.opts.Trace != nil {
		fmt.Fprintf(r.opts.Trace, "%12v %4d  %s\n", r.clock.Now(), r.plans, fmt.Sprintf(format, args...))
	}
}

// add passes req to the scheduler. It returns the caller's record of the request if it was
// accepted, and the scheduler's error if not.
func (r *rig) add(req scheduler.Request) (*order, error) {
	o := r.newOrder(req)
	r.book.coming = &o.req
	out, err := r.sched.AddOrDisplace(r.clock.Now(), req, r.out[:0])
	r.tell(out)
	r.book.coming = nil
	r.note("add %d: prompt %d, limit %d, salt %q: %v", req.ID, len(req.Prompt), req.MaxTokens, req.Namespace.Salt, err)
	r.sum.add(req.ID, err)
	r.each(func(c checker) { c.added(o, err) })
	if err != nil {
		r.report.Refused++
		return nil, err
	}
	r.report.Requests++
	r.expectOutputs(o)
	r.book.open(o)
	r.pump()
	return o, nil
}

// newOrder makes the caller's record of a request.
func (r *rig) newOrder(req scheduler.Request) *order {
	o := &order{req: req, limit: outputLimit(&req, &r.cfg, &r.info), added: r.clock.Now()}
	o.req.Prompt = slices.Clone(req.Prompt)
	for i := range max(req.Samples, 1) {
		s := &sample{of: o, index: i, seed: engine.BranchSeed(req.Sampling.Seed, i), seen: seen{cached: -1}}
		o.samples = append(o.samples, s)
	}
	return o
}

// expectOutputs computes the expected outputs of an accepted request.
func (r *rig) expectOutputs(o *order) {
	for _, s := range o.samples {
		params := o.req.Sampling
		params.Seed = s.seed
		s.want = r.oracle.Expect(o.req.Prompt, params, o.limit, newOutline(&o.req, r.cfg.Vocabulary).mask)
		s.reason = scheduler.Ending{Reason: scheduler.Length}
		if o.req.Pooling != scheduler.NoPooling {
			s.reason.Reason = scheduler.Stop
		}
		shape := newOutline(&o.req, r.cfg.Vocabulary)
		for n := range len(s.want) {
			if ended, e := shape.feed(s.want[:n+1]); ended {
				s.want, s.reason = s.want[:n+1], e
				break
			}
		}
	}
}

// outputLimit returns the most tokens that an output of req may have: none of an embedding, MaxTokens if that is
// set, else the lowest of the limits of the configuration, the model and the pool. The last
// token of an output is never run, so it needs no room.
func outputLimit(req *scheduler.Request, cfg *scheduler.Config, info *engine.Info) int {
	if req.MaxTokens > 0 || req.Pooling != scheduler.NoPooling {
		return req.MaxTokens
	}
	n := len(req.Prompt)
	return min(cfg.DefaultMaxTokens, info.MaxPositions-n+1, poolTokens(cfg, info)-n+1)
}

// poolTokens returns the number of tokens for which the scheduler can rely on the pool.
func poolTokens(cfg *scheduler.Config, info *engine.Info) int {
	return cmp.Or(cfg.SharePages, info.NumPages) * info.PageTokens
}

// abort aborts the request id with the given cause, which may be nil. No request need have
// that ID.
func (r *rig) abort(id scheduler.RequestID, cause error) {
	o := r.book.byID[id]
	r.note("abort %d: %v", id, cause)
	if o != nil && o.abort == nil {
		if o.abort = cause; cause == nil {
			o.abort = scheduler.ErrAborted
		}
		r.countAbort(o)
		if r.bug.deaf(r) {
			r.each(func(c checker) { c.aborted(o) })
			return
		}
	}
	r.tell(r.sched.Abort(r.clock.Now(), id, cause, r.out[:0]))
	if o != nil {
		r.each(func(c checker) { c.aborted(o) })
	}
	r.pump()
}

// expire ends the requests past their deadline.
func (r *rig) expire() {
	if r.lost != nil {
		return
	}
	r.tell(r.sched.Expire(r.clock.Now(), r.out[:0]))
	r.lower.parks.look()
	r.publish(r.sched.TakeEvents(r.events[:0])) // of what a quota takes from ended requests: no plan may follow
	r.each(func(c checker) { c.expired() })
}

// runs reports whether a plan in flight has a row of the sample.
func (r *rig) runs(s *sample) bool {
	return slices.ContainsFunc(r.flights, func(f *flight) bool { return s.lastSeq == f.seq })
}

// countAbort counts in the report the phase in which o was aborted. It notes in o the last
// plan in flight that has a row of o.
func (r *rig) countAbort(o *order) {
	count := &r.report.Aborts
	switch s := o.samples[0]; { // judged by its first sample
	case !s.bound:
		count.Queued++
	case s.computed < len(o.req.Prompt):
		count.Prefilling++
	default:
		count.Decoding++
	}
	for _, s := range o.samples {
		if !s.ended && r.runs(s) {
			o.abortPlan = max(o.abortPlan, s.lastSeq)
		}
	}
	if o.abortPlan > 0 {
		count.WhileRunning++
	}
}

// stop is called when the plan of f, or its submission, failed with err because the device
// is lost: by an injected fault, or as the effect of a bug.
func (r *rig) stop(f *flight, err error) {
	r.each(func(c checker) { c.resulted(f, nil, err) })
	r.shut(err)
}

// shut ends every request with err: the device is lost, or the process ends.
func (r *rig) shut(err error) {
	r.note("fail: %v", err)
	r.lost, r.flights = err, nil
	r.tell(r.sched.Fail(r.clock.Now(), err, r.out[:0]))
	r.pump()
}

// settle is called when nothing is left to do at the current time.
func (r *rig) settle() { r.each(func(c checker) { c.settled() }) }

// deliver advances the clock until all messages have arrived.
func (r *rig) deliver() {
	for r.mail.underway > 0 && r.clock.Step() {
	}
}

// close ends the world: it runs the last checks, returns all pages to the pool and
// completes the report. No request may be open and no message in flight.
func (r *rig) close() {
	r.closed = true
	r.pump()
	r.deliver() // Drain only returns pages that have arrived
	r.bug.end(r)
	r.lower.ledger.closing()
	(&contents{watcher{r, "contents"}}).check()
	r.giveBack(r.sched.Drain(nil))
	r.rival.leave()
	r.publish(r.sched.TakeEvents(r.events[:0]))
	r.deliver()
	r.each(func(c checker) { c.finished() })
	m := r.sched.Metrics()
	r.report.PromptTokens += int(m.PromptTokens)
	r.report.CachedTokens += int(m.CachedTokens)
	r.report.Moves.Fetches += int(m.Fetches)
	for i := range m.Tiers {
		r.report.Moves.HitTokens += int(m.Tiers[i].HitTokens)
		r.report.Moves.Lost += int(m.Tiers[i].Lost)
	}
	r.sum.add(m)
	r.report.Digest = r.sum.sum
	r.report.Messages += r.mail.sent
	r.report.Time += r.clock.Now()
}
