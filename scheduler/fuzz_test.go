package scheduler

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// world runs a scheduler against sim and a pool that answers late, with random
// arrivals and aborts, and holds it to the promises of the package.
type world struct {
	rng  *rand.Rand
	sim  *sim
	s    *Scheduler
	pool *mempool.Pool
	mail []func() // to and from the pool, in order; not handled yet
	now  time.Duration

	want   map[RequestID][]kv.Token // the whole output, if nothing stops it
	got    map[RequestID][]kv.Token
	ended  map[RequestID]Ending
	nextID RequestID
	stems  [][]kv.Token // prompts continue these

	flying []flight

	faults  bool
	calm    bool // nobody aborts
	prompts map[RequestID][]kv.Token
	doomed  bool // ends by Fail
}

type flight struct {
	p   *Plan
	res *engine.Result
}

var oneSeed = flag.Int64("seed", -1, "replay one seed of TestRandomWorlds")
var seedCount = flag.Uint64("seeds", 300, "how many seeds TestRandomWorlds runs")

var errRow = errors.New("row fails")

func newWorld(seed uint64) (*world, error) {
	rng := rand.New(rand.NewPCG(seed, 99))
	pageTokens := []int{1, 2, 4, 16}[rng.IntN(4)]
	poolTokens := 96 + rng.IntN(200)
	cfg := Config{
		Policy:          policies[rng.IntN(len(policies))],
		MaxInflight:     1 + rng.IntN(2),
		OldestEvery:     1 + rng.IntN(20),
		Aging:           1 + rng.IntN(50),
		Quantum:         1 + rng.IntN(100),
		MaxPrefilling:   1 + rng.IntN(5),
		Tenant:          TenantConfig{MaxRunning: []int{0, 0, 1, 3}[rng.IntN(4)]},
		Tenants:         map[string]TenantConfig{"b": {Weight: 3}},
		AttentionTokens: []int{0, 10, 100}[rng.IntN(3)],
		StepTokens:      []int{1, 3, 16, 64, 512}[rng.IntN(5)],
		MaxRunning:      1 + rng.IntN(8),
		MaxQueued:       12,
		ShareTokens:     1 + rng.IntN(20),
		MaxBypass:       1 + rng.IntN(5),
		DisableCache:    rng.IntN(6) == 0,
		Events:          rng.IntN(2) == 0,
	}
	w := &world{
		rng: rng, sim: newSim(pageTokens, poolTokens/pageTokens, 8, 120),
		want: map[RequestID][]kv.Token{}, got: map[RequestID][]kv.Token{}, ended: map[RequestID]Ending{},
		faults: rng.IntN(4) == 0, calm: rng.IntN(4) == 0, doomed: rng.IntN(6) == 0,
		prompts: map[RequestID][]kv.Token{},
	}
	if w.faults {
		w.sim.fail = func(uint64, int) error {
			if rng.IntN(40) == 0 {
				return errRow
			}
			return nil
		}
	}
	if rng.IntN(2) == 0 {
		cfg.LeaseLowPages = 1 + rng.IntN(8)
		cfg.LeaseBulkPages = 1 + rng.IntN(12)
		cfg.LeaseHighPages = min(cfg.LeaseLowPages+rng.IntN(12), w.sim.info.NumPages)
		cfg.LeaseLowPages, cfg.LeaseBulkPages = min(cfg.LeaseLowPages, cfg.LeaseHighPages), min(cfg.LeaseBulkPages, w.sim.info.NumPages)
	}
	w.pool, _ = mempool.NewPool(w.sim.info.NumPages)
	for range 4 {
		w.stems = append(w.stems, w.tokens(5+rng.IntN(40)))
	}
	var err error
	w.s, err = New(cfg, w.sim.info)
	return w, err
}

func (w *world) tokens(n int) []kv.Token {
	t := make([]kv.Token, n)
	for i := range t {
		t[i] = kv.Token(w.rng.IntN(3)) // few, so that prefixes meet anywhere
	}
	return t
}

func (w *world) arrive() error {
	stem := w.stems[w.rng.IntN(len(w.stems))]
	prompt := append(slices.Clone(stem[:w.rng.IntN(len(stem)+1)]), w.tokens(1+w.rng.IntN(12))...)
	if w.rng.IntN(3) == 0 && len(w.got) > 0 { // a conversation goes on
		if id := RequestID(w.rng.IntN(int(w.nextID))); len(w.got[id]) > 0 {
			prompt = append(prompt, w.got[id]...)
		}
	}
	w.nextID++
	req := Request{ID: w.nextID, Prompt: prompt, MaxTokens: 1 + w.rng.IntN(20), Priority: int32(w.rng.IntN(3)), Tenant: []string{"", "a", "b"}[w.rng.IntN(3)]}
	if w.rng.IntN(4) == 0 {
		req.Namespace.Salt = "other"
	}
	if w.rng.IntN(4) == 0 {
		req.StopTokens = []kv.Token{kv.Token(w.rng.IntN(w.sim.info.Vocab))}
	}
	err := w.s.Add(w.now, req)
	switch {
	case err == nil:
		full := w.sim.expect(prompt, req.MaxTokens)
		for i, t := range full {
			if slices.Contains(req.StopTokens, t) {
				full = full[:i+1]
				break
			}
		}
		w.want[req.ID] = full
		w.prompts[req.ID] = prompt
		if len(prompt) <= 45 {
			w.stems = append(w.stems, prompt)
		}
		return nil
	case errors.Is(err, ErrQueueFull), errors.Is(err, ErrPromptTooLong), errors.Is(err, ErrTooLarge):
		return nil
	}
	return err
}

// take checks what the scheduler says of requests.
func (w *world) take(out []Output) error {
	for _, o := range out {
		want, known := w.want[o.Request]
		if _, over := w.ended[o.Request]; over || !known {
			return fmt.Errorf("request %d gets news after its ending or without Add", o.Request)
		}
		if o.Sampled {
			w.got[o.Request] = append(w.got[o.Request], o.Token)
		}
		got := w.got[o.Request]
		if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			return fmt.Errorf("request %d: tokens %v, want %v", o.Request, got, want)
		}
		switch e := o.Ending; e.Reason {
		case NotEnded:
			continue
		case Stop, Length:
			if len(got) != len(want) || e.OutputTokens != len(got) {
				return fmt.Errorf("request %d ended by %v after %d of %d tokens", o.Request, e.Reason, len(got), len(want))
			}
		case Failed:
			if !w.faults && !w.doomed || !errors.Is(e.Err, errRow) {
				return fmt.Errorf("request %d failed: %v", o.Request, e.Err)
			}
		}
		e := o.Ending
		if e.PromptTokens != len(w.prompts[o.Request]) || e.CachedTokens >= e.PromptTokens || e.OutputTokens != len(got) ||
			e.Queued > e.FirstToken && e.FirstToken > 0 || e.FirstToken > e.Total || e.Queued > e.Total {
			return fmt.Errorf("request %d: %d tokens of a prompt of %d, bill %+v", o.Request, len(got), len(w.prompts[o.Request]), e)
		}
		w.ended[o.Request] = e
	}
	return nil
}

// pump sends what the scheduler wants and gives back, in a shell's order.
func (w *world) pump() {
	if n := w.s.Want(); n > 0 {
		w.mail = append(w.mail, func() {
			pages, _ := w.pool.Grant(min(n, w.pool.FreePages()), nil)
			free := w.pool.FreePages()
			w.mail = append(w.mail, func() { w.s.Grant(pages, free) }) // the way back takes time too
		})
	}
	if pages := w.s.Surplus(nil); len(pages) > 0 {
		w.mail = append(w.mail, func() { w.pool.Return(pages) })
	}
}

func (w *world) post(n int) {
	for ; n > 0 && len(w.mail) > 0; n-- {
		f := w.mail[0]
		w.mail = w.mail[1:]
		f()
		w.pump()
	}
}

// quiet lets all mail be handled; it must come to an end.
func (w *world) quiet() error {
	w.pump()
	for range 2*w.sim.info.NumPages + 10 {
		if len(w.mail) == 0 {
			return nil
		}
		w.post(1)
	}
	return fmt.Errorf("pages go to and fro for ever: %v", w.s.Metrics())
}

func (w *world) abort(out []Output) []Output {
	if w.calm || w.rng.IntN(8) > 0 {
		return out
	}
	return w.s.Abort(w.now, RequestID(w.rng.IntN(int(w.nextID)+1)), nil, out)
}

func (w *world) checkPlan(p *Plan) error {
	cfg := w.s.Config()
	if p.Tokens() > cfg.StepTokens || len(p.Batch.Rows) > cfg.MaxRunning || len(p.Batch.Rows) == 0 {
		return fmt.Errorf("plan of %d rows, %d tokens", len(p.Batch.Rows), p.Tokens())
	}
	slots, written, bound := map[int32]bool{}, map[kv.PageID]bool{}, map[int32]bool{}
	for i := range p.Batch.Binds {
		if slot := int32(p.Batch.Binds[i].Slot); bound[slot] {
			return fmt.Errorf("slot %d is bound twice", slot)
		} else {
			bound[slot] = true
		}
	}
	for i := range p.Batch.Rows {
		r := &p.Batch.Rows[i]
		if slots[int32(r.Slot)] {
			return fmt.Errorf("slot %d has two rows", r.Slot)
		}
		slots[int32(r.Slot)] = true
		for _, id := range r.Pages[int(r.Start)/w.sim.info.PageTokens:] {
			if written[id] {
				return fmt.Errorf("page %d is written by two rows", id)
			}
			written[id] = true
		}
	}
	for i := range p.Batch.Rows {
		r := &p.Batch.Rows[i]
		for _, id := range r.Pages[:int(r.Start)/w.sim.info.PageTokens] {
			if written[id] {
				return fmt.Errorf("page %d is read by one row and written by another", id)
			}
		}
	}
	return nil
}

func (w *world) step() error {
	w.now += time.Millisecond
	var out []Output
	p := w.s.Next(w.now)
	w.pump()
	if p == nil && len(w.flying) > 0 {
		return w.land(out)
	}
	if p == nil {
		if len(w.mail) == 0 && w.s.Open() > 0 {
			return fmt.Errorf("%d requests wait for nothing: %v", w.s.Open(), w.s.Metrics())
		}
		w.post(1 + w.rng.IntN(3))
		out = w.abort(out)
		w.pump()
		return w.take(out)
	}
	if err := w.checkPlan(p); err != nil {
		return err
	}
	out = w.abort(out) // while the plan runs
	if w.rng.IntN(3) == 0 {
		w.pump()
		w.post(w.rng.IntN(3))
	}
	res, err := w.sim.run(&p.Batch)
	if err != nil {
		return err
	}
	w.flying = append(w.flying, flight{p, res})
	if w.s.cfg.MaxInflight > 1 && len(w.flying) == 1 && w.rng.IntN(4) > 0 {
		w.s.TakeEvents(nil)
		return w.take(out)
	}
	if w.rng.IntN(4) == 0 {
		if err := w.quiet(); err != nil {
			return err
		}
	}
	return w.land(out)
}

// land completes the oldest plan in flight.
func (w *world) land(out []Output) error {
	f := w.flying[0]
	w.flying = w.flying[1:]
	out = w.s.Complete(w.now, f.p, f.res, out)
	w.pump()
	out = w.abort(out)
	w.post(w.rng.IntN(3))
	w.s.TakeEvents(nil)
	return w.take(out)
}

func (w *world) run(steps int) error {
	for range steps {
		for w.rng.IntN(3) == 0 {
			if err := w.arrive(); err != nil {
				return err
			}
		}
		if err := errors.Join(w.step(), w.s.Check()); err != nil {
			return err
		}
	}
	if w.doomed {
		w.arrive()
		w.s.Next(w.now)
		w.flying = nil
		if err := w.take(w.s.Fail(w.now, errRow, nil)); err != nil {
			return err
		}
		if err := w.s.Check(); err != nil || w.s.Open() > 0 {
			return fmt.Errorf("after Fail: %d open, %v", w.s.Open(), err)
		}
	}
	for bound := 0; w.s.Open() > 0; bound++ {
		if bound > 100_000 {
			return fmt.Errorf("%d requests wait for ever", w.s.Open())
		}
		if err := w.step(); err != nil {
			return err
		}
	}
	for len(w.flying) > 0 { // rows of what has stopped
		if err := w.land(nil); err != nil {
			return err
		}
	}
	if len(w.ended) != len(w.want) {
		return fmt.Errorf("%d requests accepted, %d ended", len(w.want), len(w.ended))
	}
	if leaked := w.s.Metrics().LeakedPages; leaked != 0 {
		return fmt.Errorf("%d pages leaked", leaked)
	}
	if err := w.quiet(); err != nil { // a grant may be on its way
		return err
	}
	m := w.s.Metrics()
	if w.calm && !w.faults && !w.doomed {
		unrun := 0 // the last output token of each
		for range w.ended {
			unrun++
		}
		if want := int(m.PromptTokens-m.CachedTokens+m.OutputTokens+m.RecomputedTokens+m.VoidTokens) - unrun; w.sim.ran > want || w.sim.ran < want && m.Preemptions == 0 {
			// A preempted one may find more in the cache than it had computed.
			return fmt.Errorf("%d tokens were run, the metrics say %d: %v", w.sim.ran, want, m)
		}
	}
	if w.s.cache != nil && m.Cache.ProtectedPages != 0 {
		return fmt.Errorf("%d pages stay pinned", m.Cache.ProtectedPages)
	}
	w.pool.Return(w.s.Drain(nil))
	if w.pool.FreePages() != w.pool.Capacity() {
		return fmt.Errorf("%d of %d pages came back", w.pool.FreePages(), w.pool.Capacity())
	}
	return errors.Join(w.s.Check(), w.pool.Check())
}

// TestRandomWorlds: whatever arrives and is aborted, on whatever pool, page size,
// chunk and policy, every request gets its exact tokens and one ending, and every
// page comes back.
func TestRandomWorlds(t *testing.T) {
	first, seeds := uint64(0), *seedCount
	if *oneSeed >= 0 {
		first, seeds = uint64(*oneSeed), 1
	}
	var preempted, cached uint64
	for seed := first; seed < first+seeds; seed++ {
		w, err := newWorld(seed)
		if err == nil {
			err = w.run(400)
		}
		if err != nil {
			t.Fatalf("seed %d: %v (replay: go test ./scheduler -run TestRandomWorlds -args -seed=%d)", seed, err, seed)
		}
		preempted += w.s.metrics.Preemptions
		cached += w.s.metrics.CachedTokens
	}
	if seeds > 1 && (preempted == 0 || cached == 0) {
		t.Errorf("%d preemptions and %d cached tokens: the worlds are too easy", preempted, cached)
	}
}

func FuzzWorld(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		w, err := newWorld(seed)
		if err == nil {
			err = w.run(200)
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	})
}
