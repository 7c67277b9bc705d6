package schedtest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// arrival is a request of a recorded load.
type arrival struct {
	at  time.Duration
	req scheduler.Request
}

// served is all that a caller has got of a sample at its end.
type served struct {
	tokens  []kv.Token
	digests []uint64
	ending  scheduler.Ending
}

// playArrivals runs a world in which these requests arrive, with drafts or without, and returns what
// each sample got.
func playArrivals(t *testing.T, o Options, all []arrival, speculate scheduler.Speculate) (got map[string]served, w *world) {
	t.Helper()
	w, err := newDraftTwin(o, speculate)
	if err != nil {
		t.Fatal(err)
	}
	got = map[string]served{}
	w.listener = func(s *sample, out *scheduler.Output) {
		one := got[label(s)]
		got[label(s)] = served{s.got, append(one.digests, out.Digest), out.Ending}
	}
	for _, a := range all {
		w.later(a.at, func() { w.add(a.req) })
	}
	w.steps = 1 << 30
	w.later(all[len(all)-1].at+1, w.end)
	if _, err := w.live(nil); err != nil {
		t.Fatal(err)
	}
	return got, w
}

// twinSetup is a world without aborts, restarts and refusals, in which requests have drafts as it says.
type twinSetup struct {
	noBug
	speculate scheduler.Speculate
}

func (b twinSetup) setup(w *setup) {
	c := &w.cfg
	c.Speculate, c.MaxQueued, c.Tenant.MaxQueued, c.Displace = b.speculate, 1<<20, 0, false
	w.restarts, w.ending, w.aborts = false, drains, 0
	w.arrivals, w.group, w.gap = poisson, 0, time.Hour
}

func newDraftTwin(o Options, speculate scheduler.Speculate) (*world, error) {
	o.plant = func() bug { return twinSetup{speculate: speculate} }
	return newWorld(o, false)
}

// recorded draws the requests of the world of o: one at a time, some steps apart.
func recorded(o Options) (all []arrival, err error) {
	w, err := newDraftTwin(o, scheduler.SpeculateAuto)
	if err != nil {
		return nil, err
	}
	w.load.patience = 0
	at := time.Duration(0)
	for len(all) < 40 {
		req := w.load.next()
		req.ID = scheduler.RequestID(len(all) + 1)
		w.guess(&req)
		if req.Deadline == 0 && req.QueueTimeout == 0 && w.sound(&req) {
			all = append(all, arrival{at, req})
		}
		at += 1 + w.when.wait(2*w.setup.stepTime)
	}
	return all, nil
}

// TestDraftsChangeNothing: with drafts and without, in worlds of all policies and with tiers, requests
// that arrive at the same times get the same tokens, digests, endings and bills. A bill divides a prompt
// into cached and computed tokens by what was there when the request began; their sum is equal, unless
// others have computed a part of it while it was preempted.
func TestDraftsChangeNothing(t *testing.T) {
	var mu sync.Mutex
	compared, drafts := 0, uint64(0)
	worlds := (*seedCount + 2) / 3
	eachSeed(t, *firstSeed, worlds, func(o Options) error {
		o.Faults, o.Tiers = false, o.Seed%3 == 1
		all, err := recorded(o)
		if err != nil {
			return err
		}
		with, w := playArrivals(t, o, all, []scheduler.Speculate{2, 16, scheduler.SpeculateAuto}[o.Seed/3%3])
		without, _ := playArrivals(t, o, all, scheduler.SpeculateOff)
		if len(with) != len(without) {
			return fmt.Errorf("seed %d: %d samples end with drafts, %d without", o.Seed, len(with), len(without))
		}
		for id, a := range with {
			b, ok := without[id]
			x, y := &a.ending, &b.ending
			if !ok || !slices.Equal(a.tokens, b.tokens) || !slices.Equal(a.digests, b.digests) || x.Reason != y.Reason || x.StopToken != y.StopToken || x.StopString != y.StopString || fmt.Sprint(x.Err) != fmt.Sprint(y.Err) ||
				x.PromptTokens != y.PromptTokens || x.OutputTokens != y.OutputTokens ||
				x.Preemptions+y.Preemptions == 0 && x.CachedTokens+x.ComputedTokens != y.CachedTokens+y.ComputedTokens {
				return fmt.Errorf("seed %d, request %s: with drafts %d tokens and %+v, without %d and %+v", o.Seed, id, len(a.tokens), *x, len(b.tokens), *y)
			}
			if n, _ := y.Drafts.Sum(); n > 0 {
				return fmt.Errorf("seed %d, request %s has %d drafts without any", o.Seed, id, n)
			}
		}
		m := w.sched.Metrics()
		n, _ := m.Drafts.Sum()
		mu.Lock()
		defer mu.Unlock()
		compared, drafts = compared+len(with), drafts+n
		return nil
	})
	t.Logf("%d samples, %d drafts", compared, drafts)
	if !t.Failed() && (compared < 20*worlds || drafts < uint64(10*worlds)) {
		t.Error("the worlds are too easy")
	}
}
