package members

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// keeper probes one worker and follows its events, on one goroutine.
type keeper struct {
	f *Fleet
	m *Member

	ranks  []kv.Rank // joined ranks
	probes int       // probes since the card was read; negative: read it again
	warned string    // last warning, to log it only once

	follows   bool      // the worker's events are followed
	since     time.Time // time at which following began
	successor uint64    // epoch of the latest process with events under this worker's name
	fault     error     // why the worker's events can't be indexed, valid until the time in until
	until     time.Time

	fetch    retry          // schedule for fetching the worker's tokenizer
	fetching sync.WaitGroup // the goroutine that fetches the tokenizer
}

// warn logs a problem, unless it was the last one that warn logged.
func (k *keeper) warn(what string, err error) {
	if text := what + err.Error(); k.warned != text {
		k.warned = text
		k.f.log.Warn(what, k.m.Field(), zap.Error(err))
	}
}

// leastProbe limits the probes after Nudge: two probes are at least ProbeEvery/leastProbe apart.
const leastProbe = 4

// refreshEvery is the number of probes after which the card is read again.
const refreshEvery = 10

// run probes the worker repeatedly until ctx ends. Then the worker leaves. If an earlier member
// with the same URL is still leaving, run first waits for it.
func (k *keeper) run(ctx context.Context) {
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
	to, health := Healthy, router.Healthy
	if !ready {
		to, health = Draining, router.Draining
	}
	if err := k.startFollowing(); err != nil {
		k.warn("events can't be followed", err)
	}
	k.learnTokenizer(ctx)
	for _, w := range k.ranks { // on every probe: Suspect may have set it to lost
		k.f.cfg.Router.SetHealth(w, health)
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
		k.f.cfg.Router.SetHealth(w, router.Lost)
	}
	k.unfollow()
	if to == Lost { // a refused worker still answers
		k.f.cfg.StillLost(k.m, k.m.lostSince())
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
			f.cfg.StillLost(m, m.lostSince())
		}
	}
}

// applyCard joins the worker with the card in s. If the worker has joined, it updates the
// models; if the card's name, pool or epoch has changed, the worker leaves and joins again. A
// worker that does not fit into the fleet is refused with an error.
func (k *keeper) applyCard(s description) error {
	f, m, known := k.f, k.m, k.m.card()
	if known != nil && k.ranks != nil && known.Name == s.card.Name && known.Pool == s.card.Pool && known.Epoch == s.card.Epoch && slices.Equal(m.sources(), s.sources) {
		if len(k.ranks) < m.Ranks() { // the router had no room for all ranks before
			return k.join(known)
		}
		if slices.Equal(known.Models, s.card.Models) && known.MaxModelTokens == s.card.MaxModelTokens &&
			known.PoolTokens == s.card.PoolTokens && known.HitTokens == s.card.HitTokens {
			return nil
		}
		return k.updateModels(s)
	}
	k.leave()
	if known != nil && known.Name != s.card.Name {
		f.Forget(known.Name)
	}
	if want := f.cfg.BlockTokens; s.card.BlockTokens%want != 0 {
		return refuse("worker %s has blocks of %d tokens, no multiple of this gateway's %d, so none of its blocks would be found: start both with the same --block-tokens",
			m.url, s.card.BlockTokens, want)
	}
	if err := k.admitted(s.card); err != nil {
		return err
	}
	k.warnOfKeys(&s)
	if err := f.checkTokenizer(m, s.card); err != nil {
		return err
	}
	if !f.claim(m, s) {
		return refuse("worker %s has the name %q of another worker: give it a unique --name", m.url, s.card.Name)
	}
	if err := k.join(s.card); err != nil {
		return err
	}
	f.Enroll() // before it may be chosen: requests find the member in the summary
	return nil
}

// admitted returns a refusal if Config.Admit refuses the card.
func (k *keeper) admitted(c *card.Card) error { return refused(k.f.cfg.Admit(k.m.url.String(), c)) }

// warnOfKeys warns of settings of API keys that are no error, but keep the worker's cached
// prefixes from being found.
func (k *keeper) warnOfKeys(s *description) {
	f, field := k.f, k.m.Field()
	switch {
	case s.card.Keyed && !f.cfg.Keyed:
		f.log.Warn("the worker requires API keys and the gateway does not, so tenants' prefixes will not be found: give both the same keys", field)
	case !s.card.Keyed && f.cfg.Keyed && !s.foreign:
		f.log.Warn("the gateway requires API keys and the worker does not, so tenants' prefixes will not be found: give both the same keys", field)
	case s.foreign && f.cfg.Keyed && !f.cfg.Tenants:
		f.log.Warn("the worker is not Coppice and may separate tenants in another way, so their prefixes may not be found", field)
	}
}

// updateModels applies a new list of models or a new maximal length, for example after the
// worker has loaded an adapter. Its cached blocks and running requests stay.
func (k *keeper) updateModels(s description) error {
	for _, w := range k.ranks {
		if err := k.f.cfg.Router.Respec(w, s.card); err != nil {
			return refused(err)
		}
	}
	k.m.mu.Lock()
	k.m.description.card, k.m.description.loras = s.card, s.loras
	k.m.mu.Unlock()
	k.f.Enroll()
	return nil
}

// join joins the ranks that have not joined yet. They get no requests until all have joined and
// the worker has answered that it is ready.
func (k *keeper) join(c *card.Card) error {
	blind := k.f.sources(k.m, c) == nil
	for dp := len(k.ranks); dp < k.m.Ranks(); dp++ {
		w := k.m.rank(c, dp)
		if err := k.f.cfg.Router.Join(w, c, blind); err != nil {
			return refused(err)
		}
		k.ranks = append(k.ranks, w)
	}
	k.m.setState(Joining)
	return nil
}

// leave removes the worker's ranks. Requests that run there are not cancelled.
func (k *keeper) leave() {
	k.unfollow()
	for _, w := range k.ranks {
		k.f.cfg.Router.Leave(w)
	}
	k.f.unclaim(k.m) // also if it could not join
	k.ranks = nil
}
