package scheduler

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// world runs a scheduler against sim and a pool that answers late, with random
// arrivals and aborts, and holds it to the promises of the package.
type world struct {
	rng   *rand.Rand
	sim   *sim
	s     *Scheduler
	pool  *mempool.Pool
	asked int // pages asked for and not answered yet
	now   time.Duration

	want   map[RequestID][]kv.Token // the whole output, if nothing stops it
	got    map[RequestID][]kv.Token
	ended  map[RequestID]Ending
	nextID RequestID
	stems  [][]kv.Token // prompts continue these

	faults bool
}

var oneSeed = flag.Int64("seed", -1, "replay one seed of TestRandomWorlds")

var errRow = errors.New("row fails")

func newWorld(seed uint64) (*world, error) {
	rng := rand.New(rand.NewPCG(seed, 99))
	pageTokens := []int{1, 2, 4, 16}[rng.IntN(4)]
	poolTokens := 96 + rng.IntN(200)
	cfg := Config{
		Policy:       Policy(rng.IntN(2)),
		StepTokens:   []int{1, 3, 16, 64, 512}[rng.IntN(5)],
		MaxRunning:   1 + rng.IntN(8),
		MaxQueued:    12,
		ShareTokens:  1 + rng.IntN(20),
		MaxBypass:    1 + rng.IntN(5),
		DisableCache: rng.IntN(6) == 0,
		Events:       rng.IntN(2) == 0,
	}
	w := &world{
		rng: rng, sim: newSim(pageTokens, poolTokens/pageTokens, 8, 120),
		want: map[RequestID][]kv.Token{}, got: map[RequestID][]kv.Token{}, ended: map[RequestID]Ending{},
		faults: rng.IntN(4) == 0,
	}
	if w.faults {
		w.sim.fail = func(uint64, int) error {
			if rng.IntN(40) == 0 {
				return errRow
			}
			return nil
		}
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
	req := Request{ID: w.nextID, Prompt: prompt, MaxTokens: 1 + w.rng.IntN(20)}
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
			if !w.faults || !errors.Is(e.Err, errRow) {
				return fmt.Errorf("request %d failed: %v", o.Request, e.Err)
			}
		}
		w.ended[o.Request] = o.Ending
	}
	return nil
}

func (w *world) answerPool(always bool) {
	if n := w.s.Want(); n > 0 {
		w.asked = n
	}
	if w.asked > 0 && (always || w.rng.IntN(3) == 0) {
		pages, _ := w.pool.Grant(min(w.asked, w.pool.FreePages()), nil)
		w.asked = 0
		w.s.Grant(pages, w.pool.FreePages())
	}
	w.pool.Return(w.s.Surplus(nil))
}

func (w *world) step() error {
	w.now += time.Millisecond
	var out []Output
	p := w.s.Next(w.now)
	if p == nil {
		w.answerPool(true)
		return nil
	}
	if w.rng.IntN(8) == 0 { // while the plan runs
		out = w.s.Abort(w.now, RequestID(w.rng.IntN(int(w.nextID)+1)), nil, out)
	}
	res, err := w.sim.run(&p.Batch)
	if err != nil {
		return err
	}
	out = w.s.Complete(w.now, p, res, out)
	if w.rng.IntN(8) == 0 {
		out = w.s.Abort(w.now, RequestID(w.rng.IntN(int(w.nextID)+1)), nil, out)
	}
	w.answerPool(false)
	w.s.TakeEvents(nil)
	return w.take(out)
}

func (w *world) run(steps int) error {
	for range steps {
		if w.rng.IntN(3) == 0 {
			if err := w.arrive(); err != nil {
				return err
			}
		}
		if err := errors.Join(w.step(), w.s.Check()); err != nil {
			return err
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
	if len(w.ended) != len(w.want) {
		return fmt.Errorf("%d requests accepted, %d ended", len(w.want), len(w.ended))
	}
	if leaked := w.s.Metrics().LeakedPages; leaked != 0 {
		return fmt.Errorf("%d pages leaked", leaked)
	}
	w.answerPool(true) // a grant may be on its way
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
	first, seeds := uint64(0), uint64(150)
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
