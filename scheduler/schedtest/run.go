package schedtest

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/scheduler"
)

// Run simulates the world selected by o. The error is that of [Options.Validate], or a
// *[Failure] if a promise was broken; then the report ends there.
//
// Cost: about a millisecond for each ten steps.
func Run(o Options) (Report, error) { return run(o, false) }

func run(o Options, second bool) (report Report, err error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return Report{Options: o}, err
	}
	w, err := newWorld(o, second)
	if err != nil {
		return Report{Options: o}, err
	}
	if report, err = w.live(nil); err != nil || !w.setup.restarts {
		return report, err
	}
	next, err := newWorld(o, second)
	if err != nil {
		return report, err
	}
	return next.live(w)
}

// live runs a world to its end, or to a failure. If before is not nil, it is the world before a
// restart.
func (w *world) live(before *world) (report Report, err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case *Failure:
			err = v
		default:
			err = w.failure("panic", fmt.Sprint(v))
			w.note("%s", debug.Stack())
		}
		report = w.report
	}()
	if before != nil {
		w.inherit(before)
	}
	w.run()
	return report, nil
}

// inherit gives w, the world after a restart, the disk and shared tiers of the world
// before. The same requests arrive again.
func (w *world) inherit(before *world) {
	w.report, w.sum = before.report, before.sum
	w.note("restart")
	for t := kv.TierDisk; int(t) < kv.Tiers; t++ {
		w.lower.stores[t] = before.lower.stores[t]
		var all []mempool.Extent
		for _, k := range sortedKeys(w.lower.stores[t]) {
			w.lower.stores[t][k].contents = nil // their requests are not this process's
			all = append(all, w.lower.stores[t][k].extent)
		}
		slices.SortStableFunc(all, func(a, b mempool.Extent) int { return cmp.Compare(a.Start, b.Start) }) // parents first
		w.sched.Found(t, all)
		w.report.Moves.Found += len(all)
	}
	w.pump()
}

// world adds load and faults to a rig.
type world struct {
	*rig
	setup  setup
	load   *load
	when   stream // arrivals
	choice stream // aborts
	post   stream // delays
	mover  stream // moves between tiers
	others stream // other processes at a shared tier
	second bool   // the second one of a pair of twins
	probes bool   // the shell looks into the shared tier for each request

	steps    int                // number of plans while requests arrive
	callerOf map[*order]*caller // used in a fair world

	over     bool          // no more arrivals
	flushing bool          // the last writes have begun
	landed   bool          // the landing of the oldest flight is scheduled
	alarm    time.Duration // time of the scheduled expiry; 0 if none
}

func newWorld(o Options, second bool) (*world, error) {
	b := bug(noBug{})
	if o.plant != nil {
		b = o.plant()
	}
	w := &world{setup: newSetup(o, b), second: second}
	w.load = newLoad(o, &w.setup, b)
	w.setup.device.Logits = w.load.penalise // without logits the simulated device would ignore penalties
	var err error
	if w.rig, err = newRig(o, b, w.setup.device, w.setup.cfg); err != nil {
		return nil, err
	}
	w.report.Options, w.report.World = o, w.setup.String()
	w.load.now = w.clock.Now
	w.when, w.choice, w.post = newStream(o.Seed, "arrivals"), newStream(o.Seed, "aborts"), newStream(o.Seed, "delays")
	w.mover, w.others = newStream(o.Seed, "moving"), newStream(o.Seed, "other processes")
	probing := newStream(o.Seed, "probe")
	w.probes = probing.one(2)
	w.steps, w.lower.speedup = o.Steps, w.setup.speedup
	if w.setup.restarts {
		w.steps = (o.Steps + 1) / 2
	}
	w.lower.took = func(*tiering.Move) time.Duration { return w.mover.wait(w.setup.store) }
	w.lower.fault = w.setup.storeFault
	w.mail.delay = func() time.Duration { return w.post.wait(w.setup.pool) }
	w.listener = w.heard
	return w, nil
}

func (w *world) run() {
	w.note("%s", w.report.World)
	w.begin()
	for {
		w.turn()
		if w.plans >= w.steps || w.lost != nil {
			w.end()
		}
		if w.over && len(w.book.live) == 0 && w.flushed() && (!w.lower.busy() || w.lost != nil) && w.mail.underway == 0 && len(w.flights) == 0 {
			break
		}
		if !w.clock.Step() {
			w.progress.dry()
			break
		}
	}
	w.close()
}

// flushed begins the last writes when no request is open, and reports whether they have ended.
func (w *world) flushed() bool {
	if w.lost != nil || w.setup.ending == shutsDown {
		return true
	}
	if !w.flushing {
		w.flushing = true
		until := w.clock.Now() + 200*w.setup.stepTime
		w.sched.Flush(w.clock.Now(), until)
		w.later(until-w.clock.Now(), func() {})
		w.turn()
	}
	return !w.sched.Flushing()
}

// turn does everything that can be done at the current time.
func (w *world) turn() {
	w.expire()
	w.setAlarm()
	w.lower.copied()
	w.move()
	if w.second {
		w.look()
	}
	for w.arrived() && !w.landed {
		if delay := w.post.wait(w.setup.notice); delay > 0 {
			w.landed = true
			w.later(delay, func() {
				if w.landed = false; len(w.flights) > 0 { // else all have failed meanwhile
					w.land()
				}
			})
			break
		}
		w.land()
	}
	for {
		f := w.plan()
		if f == nil {
			break
		}
		w.giveUpRunning()
		w.rival.act()
	}
	w.settle()
}

// setAlarm schedules a turn at the next deadline.
func (w *world) setAlarm() {
	now := w.clock.Now()
	at, ok := w.sched.NextExpiry()
	if ok && w.lost == nil && (w.alarm <= now || at < w.alarm) {
		w.alarm = max(at, now)
		w.later(w.alarm-now, func() {})
	}
}

// look calls every method that only reads. The second twin does so, to show that reading
// changes nothing.
func (w *world) look() {
	waiting := map[scheduler.RequestID][]scheduler.Wait{}
	for _, wait := range w.sched.Waiting(nil) {
		waiting[wait.Request] = append(waiting[wait.Request], wait)
	}
	for _, o := range w.book.live {
		why := slices.DeleteFunc(w.sched.Why(o.req.ID), func(wait scheduler.Wait) bool { return wait.Cause == scheduler.Runs })
		if !slices.Equal(why, waiting[o.req.ID]) {
			w.fail("twin", "Why(%d) is %v, but the list of all waiting requests has %v", o.req.ID, why, waiting[o.req.ID])
		}
		w.sched.Timeline(o.req.ID)
		if _, err := w.sched.Explain(w.clock.Now(), &o.req); err != nil && !errors.Is(err, scheduler.ErrNoCache) {
			w.fail("twin", "Explain of request %d: %v", o.req.ID, err)
		}
	}
	w.sched.Metrics()
	w.sched.Tenants()
}

// later calls do after a delay, unless the world has ended or failed by then.
func (w *world) later(delay time.Duration, do func()) {
	w.clock.At(w.clock.Now()+delay, func() {
		if !w.closed {
			do()
		}
	})
}

// end stops the arrivals, and in some worlds the process.
func (w *world) end() {
	if w.over {
		return
	}
	w.over = true
	w.note("no more arrivals")
	w.progress.stopped()
	if w.setup.ending == shutsDown && w.lost == nil {
		w.shut(errOver)
		w.settle()
	}
}

// begin schedules the first requests.
func (w *world) begin() {
	if w.setup.callers != nil {
		w.callAll()
		return
	}
	if w.setup.arrivals != closedLoop {
		w.later(0, w.arrive)
		return
	}
	for range w.setup.group {
		w.later(w.when.wait(w.setup.gap), w.arriveOne)
	}
}

// arrive adds a group of requests and schedules the next group.
func (w *world) arrive() {
	if w.over {
		return
	}
	for range w.setup.group {
		w.arriveOne()
	}
	w.later(1+w.when.wait(w.setup.gap), w.arrive)
}

func (w *world) arriveOne() {
	if w.over || w.lost != nil {
		return
	}
	w.bug.arrive(w)
	w.hint()
	w.park()
	if _, err := w.send(w.load.next(), w.setup.aborts); err != nil && w.setup.arrivals == closedLoop {
		w.later(w.setup.stepTime+w.when.wait(w.setup.gap), w.arriveOne)
	}
}

// send adds a request. If aborts is positive, one caller in that number gives up later.
func (w *world) send(req scheduler.Request, aborts int) (*order, error) {
	if w.probes && w.lost == nil {
		w.lower.probe(req.Namespace, req.Prompt)
	}
	w.guess(&req)
	o, err := w.add(req)
	if err == nil && aborts > 0 && w.choice.one(aborts) {
		w.later(w.choice.wait(w.setup.stepTime*20), func() { w.giveUp(req.ID) })
	}
	return o, err
}

// heard is called with each output. If the sample has ended, it schedules the next request
// of the closed-loop client or tenant that waited for it.
func (w *world) heard(s *sample, _ *scheduler.Output) {
	if !s.ended {
		return
	}
	w.load.ended(s)
	switch {
	case s.of.open > 0 || w.over:
	case w.setup.callers != nil:
		w.answered(s.of)
	case w.setup.arrivals == closedLoop:
		w.later(w.when.wait(w.setup.gap), w.arriveOne)
	}
}

// giveUp aborts the request id, which may have ended already.
func (w *world) giveUp(id scheduler.RequestID) {
	if w.lost != nil {
		return
	}
	var cause error
	if w.choice.one(3) {
		cause = errGone
	}
	w.abort(id, cause)
}

var errGone = errors.New("schedtest: the caller has left")

// giveUpRunning sometimes aborts a random open request just after a plan was submitted, so
// that it may have a row in flight. It sometimes aborts a second, possibly unknown one.
func (w *world) giveUpRunning() {
	if w.setup.aborts == 0 || !w.choice.one(10*w.setup.aborts) || len(w.book.live) == 0 {
		return
	}
	w.giveUp(w.book.live[w.choice.IntN(len(w.book.live))].req.ID)
	if w.choice.one(2) { // twice, or an unknown one
		w.giveUp(scheduler.RequestID(w.choice.IntN(int(w.load.nextID) + 2)))
	}
}
