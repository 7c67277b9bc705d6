package members

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
)

// leastProbe limits the probes after Nudge: two probes are at least ProbeEvery/leastProbe apart.
const leastProbe = 4

// refreshEvery is the number of probes after which the card is read again.
const refreshEvery = 10

// keep probes the worker repeatedly until ctx ends. Then the worker leaves. If an earlier member
// with the same URL is still leaving, keep first waits for it.
func (k *keeper) keep(ctx context.Context) {
	m, every := k.m, k.f.cfg.ProbeEvery
	defer close(m.done)
	defer k.fetching.Wait()
	if m.before != nil {
		<-m.before.done
		m.before = nil
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	last := time.Time{}
	for {
		select {
		case <-ctx.Done():
			k.leave()
			k.f.closeForNew(m)
			return
		case <-timer.C:
		case <-m.kick:
			k.probes = -1 // read the card again: the worker may have been restarted
			// Probe soon, but not as often as requests fail there.
			if wait := every/leastProbe - time.Since(last); wait > 0 {
				timer.Reset(wait)
				continue
			}
		}
		last = time.Now()
		k.probe(ctx)
		timer.Reset(every)
	}
}

// probe asks the worker once and handles the answer or its absence. The probe itself has a
// timeout; what it starts may run until whole ends.
func (k *keeper) probe(whole context.Context) {
	ctx, cancel := context.WithTimeout(whole, k.f.cfg.ProbeTimeout)
	defer cancel()
	ready, err := k.ask(ctx)
	if err != nil {
		k.failed(ctx, err)
		return
	}
	k.answered(whole, ready)
}

// ask reads the card if that is due, and asks the worker whether it takes new requests. The
// error says why the worker is lost or refused.
func (k *keeper) ask(ctx context.Context) (ready bool, err error) {
	known := k.m.Status()
	k.probes++
	if known.Card == nil || known.State == Lost || known.State == Refused || k.probes%refreshEvery == 0 {
		s, err := k.f.readCard(ctx, k.m)
		if err == nil {
			err = k.applyCard(s)
		}
		if err != nil {
			return false, err
		}
	}
	if ready, err = k.f.ready(ctx, k.m); err == nil {
		err = k.checkEvents(time.Now())
	}
	if err == nil { // the pools or the tokenizer may have changed since it joined
		err = k.admitted(k.m.card())
	}
	if err == nil {
		err = k.f.checkTokenizer(k.m, k.m.card())
	}
	return ready, err
}

// answered handles a successful probe. ready says whether the worker takes new requests.
func (k *keeper) answered(ctx context.Context, ready bool) {
	to := Healthy
	if !ready {
		to = Draining
	}
	if err := k.startFollowing(); err != nil {
		k.warn("events can't be followed", err)
	}
	k.learnTokenizer(ctx)
	for _, w := range k.ranks { // on every probe: Suspect may have set it to lost
		k.f.cfg.Apply(Health{w, to})
	}
	if was := k.m.setState(to); was != to { // log only after the change has been applied
		k.f.log.Info("worker "+to.String(), k.m.Field())
		k.f.Enroll()
	}
	k.watch(time.Now())
}

// failed handles a probe that ended with err.
func (k *keeper) failed(ctx context.Context, err error) {
	if errors.Is(ctx.Err(), context.Canceled) || Exhausted(err) {
		return // the gateway is closing or out of descriptors: not the worker's fault
	}
	to := Lost
	if errors.As(err, new(refusal)) {
		to = Refused
	}
	if !k.m.failed(to, err, k.f.cfg.FailAfter) {
		return
	}
	for _, w := range k.ranks {
		k.f.cfg.Apply(Health{w, Lost})
	}
	k.unfollow()
	if to == Lost { // a refused worker still answers
		k.f.cfg.Apply(StillLost{k.m, k.m.lostSince()})
	}
	what := "worker " + to.String()
	if was := k.m.setState(to); was == to { // log only after the change has been applied
		k.warn(what, err)
		return
	}
	k.warned = what + err.Error()
	k.f.log.Error(what, k.m.Field(), zap.Error(err))
	k.f.Enroll()
}

// closeForNew closes a worker that has left for new requests. The worker is still probed while
// requests run there, see linger.
func (f *Fleet) closeForNew(m *Member) {
	m.mu.Lock()
	m.left = true
	m.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed { // when the fleet closes, all requests end
		f.background.Go(func() { f.linger(m) })
	}
}

// linger probes a worker that has left until no request runs there. If the worker's machine
// fails, nothing else would end these requests.
func (f *Fleet) linger(m *Member) {
	t := time.NewTicker(f.cfg.ProbeEvery)
	defer t.Stop()
	for m.used() {
		select {
		case <-f.ctx.Done():
			return
		case <-t.C:
		}
		ctx, cancel := context.WithTimeout(f.ctx, f.cfg.ProbeTimeout)
		_, err := f.ready(ctx, m)
		cancel()
		switch {
		case err == nil:
			m.setState(Draining)
		case Exhausted(err):
		case m.Status().State == Lost || m.failed(Lost, err, f.cfg.FailAfter):
			m.setState(Lost)
			f.cfg.Apply(StillLost{m, m.lostSince()})
		}
	}
}
