package router

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// chain returns n block hashes for the prompt number of. For the same of, a longer chain begins
// with the shorter one; different prompts share no hash.
func chain(of, n int) []kv.BlockHash {
	all := make([]kv.BlockHash, n)
	for i := range all {
		all[i] = kv.BlockHash(of<<32 + i + 1)
	}
	return all
}

// TestPromise: a prompt counts as cached where another request computes it, until that
// request's first token, its end, or a removal.
func TestPromise(t *testing.T) {
	const blocks = 6
	prompt := chain(1, blocks)
	for _, c := range []struct {
		name  string
		known int // blocks of the first request's prompt that the index has
		ends  func(r *Router, d Decision)
		later int // blocks that the index has then
		want  int
	}{
		{"before its first token", 0, func(*Router, Decision) {}, 0, blocks},
		{"of some that are known", 2, func(*Router, Decision) {}, 2, blocks},
		{"its first token", 0, func(r *Router, d Decision) { r.Progress(second, d.Reservation, 0, 1) }, 0, 0},
		{"its first token, and events", 0, func(r *Router, d Decision) { r.Progress(second, d.Reservation, 0, 1) }, 4, 4},
		{"half of its prompt", 0, func(r *Router, d Decision) { r.Progress(second, d.Reservation, 48, 0) }, 3, blocks},
		{"its end", 0, func(r *Router, d Decision) { r.Release(second, d.Reservation) }, 0, 0},
		{"it was taken back", 0, func(r *Router, d Decision) { r.Rollback(second, d.Reservation) }, 0, 0},
		{"a removal", 0, func(r *Router, d Decision) { r.Removed(d.Worker, prompt[4:5]) }, 0, 4},
		{"a removal and its end", 0, func(r *Router, d Decision) {
			r.Removed(d.Worker, prompt[4:5])
			r.Release(second, d.Reservation)
		}, 0, 0},
		{"a removal of what was known", 2, func(r *Router, d Decision) { r.Removed(d.Worker, prompt[1:2]) }, 1, 1},
		{"a clear", 0, func(r *Router, d Decision) { r.Cleared(d.Worker) }, 0, 0},
		{"a clear and its end", 0, func(r *Router, d Decision) {
			r.Cleared(d.Worker)
			r.Release(second, d.Reservation)
		}, 0, 0},
		{"its worker left", 0, func(r *Router, d Decision) { r.Leave(second, d.Worker, nil) }, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRouter(t, Config{Predict: true}, WorkerSpec{}, WorkerSpec{})
			pin := worker1(0)
			d := selected(t, r, 0, Request{PromptTokens: 100, Hashes: prompt, Pinned: &pin, Overlaps: []Overlap{{Worker: pin, Device: c.known}}})
			if d.Overlap.Blocks() != c.known {
				t.Fatalf("the first one finds %d blocks, want %d", d.Overlap.Blocks(), c.known)
			}
			c.ends(r, d)
			if err := r.Check(); err != nil {
				t.Fatal(err)
			}
			req := Request{PromptTokens: 100, Hashes: prompt, Overlaps: []Overlap{{Worker: pin, Device: c.later}}}
			e, err := r.Explain(2*second, &req)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range e.Candidates {
				want := 0
				if x.Worker == pin {
					want = c.want
				}
				if x.Overlap.Blocks() != want {
					t.Errorf("worker %v is taken to have %d blocks, want %d", x.Worker, x.Overlap.Blocks(), want)
				}
			}
		})
	}
}

// TestPromisesAreOff: without Predict only the index counts.
func TestPromisesAreOff(t *testing.T) {
	r := newRouter(t, Config{}, WorkerSpec{})
	for range 2 {
		if d := selected(t, r, 0, Request{PromptTokens: 100, Hashes: chain(1, 6)}); d.Overlap.Blocks() != 0 || r.Metrics().Promised != 0 {
			t.Errorf("%d blocks are found, %d promised", d.Overlap.Blocks(), r.Metrics().Promised)
		}
	}
}

// TestPromisesOfAReplica: blocks that another router's request will compute are predicted
// too.
func TestPromisesOfAReplica(t *testing.T) {
	a := newRouter(t, Config{Predict: true, Replica: 1, Epoch: 1}, WorkerSpec{}, WorkerSpec{})
	b := newRouter(t, Config{Predict: true, Replica: 2, Epoch: 1}, WorkerSpec{}, WorkerSpec{})
	tell := func() {
		for _, ev := range a.Drain(nil) {
			b.Apply(0, &ev)
		}
		if err := b.Check(); err != nil {
			t.Fatal(err)
		}
	}
	pin := worker1(1)
	d := selected(t, a, 0, Request{PromptTokens: 100, Hashes: chain(1, 6), Pinned: &pin})
	tell()
	if b.Metrics().Promised != 6 {
		t.Errorf("%d blocks are promised, want 6", b.Metrics().Promised)
	}
	a.Progress(0, d.Reservation, 0, 1)
	tell()
	if b.Metrics().Promised != 0 {
		t.Errorf("%d blocks are promised after the first token", b.Metrics().Promised)
	}
}

// TestPromisesAreThoseOfSets plays random requests and compares the predicted blocks with
// one set of blocks per request.
func TestPromisesAreThoseOfSets(t *testing.T) {
	for seed := range uint64(40) {
		if err := playPromises(t, seed); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

type promised struct {
	worker kv.Rank
	hashes []kv.BlockHash
	blocks map[kv.BlockHash]bool
}

// cut ends the prediction for block h and all blocks after it, if h is predicted.
func (p *promised) cut(h kv.BlockHash) {
	if p.blocks[h] {
		for _, later := range p.hashes[slices.Index(p.hashes, h):] {
			delete(p.blocks, later)
		}
	}
}

// promiseWorld is a router, and a model of its predictions made of sets.
type promiseWorld struct {
	rnd     *rand.Rand
	r       *Router
	now     time.Duration
	prompts [][]kv.BlockHash
	index   map[kv.Rank]map[kv.BlockHash]bool
	open    map[Reservation]promised
	order   []Reservation
}

func playPromises(t *testing.T, seed uint64) error {
	rnd := rand.New(rand.NewPCG(seed, 15))
	w := &promiseWorld{
		rnd: rnd, r: newRouter(t, Config{Predict: true, Seed: seed}, WorkerSpec{}, WorkerSpec{}, WorkerSpec{}),
		index: map[kv.Rank]map[kv.BlockHash]bool{}, open: map[Reservation]promised{}, prompts: make([][]kv.BlockHash, 6),
	}
	for i := range w.prompts {
		w.prompts[i] = chain(i%2+1, 2+rnd.IntN(9))
		if i >= 4 { // they part on their way
			w.prompts[i] = append(w.prompts[i][:2:2], chain(i+1, 9)[2:3+rnd.IntN(6)]...)
		}
	}
	for i := range 3 {
		w.index[worker1(i)] = map[kv.BlockHash]bool{}
	}
	for step := range 400 {
		w.now = time.Duration(step) * time.Millisecond
		var err error
		switch k := rnd.IntN(24); {
		case k < 8:
			err = w.ask()
		case k < 16 && len(w.order) > 0:
			w.end(k < 12)
		case k < 20:
			w.remove()
		case k == 23:
			w.clear()
		}
		if err == nil {
			err = w.r.Check()
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	return nil
}

// prefix returns the number of leading blocks of a prompt that a worker has by the sets,
// or will have by predictions.
func (w *promiseWorld) prefix(at kv.Rank, hashes []kv.BlockHash, more bool) (n int) {
	for ; n < len(hashes) && w.index[at][hashes[n]]; n++ {
	}
	for ; more && n < len(hashes); n++ {
		found := false
		for _, p := range w.open {
			found = found || p.worker == at && p.blocks[hashes[n]]
		}
		if !found {
			break
		}
	}
	return n
}

func (w *promiseWorld) ask() error {
	hashes := w.prompts[w.rnd.IntN(len(w.prompts))]
	req := Request{PromptTokens: 16 * len(hashes), Hashes: hashes}
	for i := range 3 {
		if n := w.prefix(worker1(i), hashes, false); n > 0 {
			req.Overlaps = append(req.Overlaps, Overlap{Worker: worker1(i), Device: n})
		}
	}
	e, err := w.r.Explain(w.now, &req)
	if err != nil {
		return err
	}
	for _, c := range e.Candidates {
		if want := w.prefix(c.Worker, hashes, true); c.Overlap.Blocks() != want {
			return fmt.Errorf("worker %v is taken to have %d blocks, want %d", c.Worker, c.Overlap.Blocks(), want)
		}
	}
	d, err := w.r.Select(w.now, &req)
	if err != nil {
		return err
	}
	p := promised{d.Worker, hashes, map[kv.BlockHash]bool{}}
	for _, h := range hashes[w.prefix(d.Worker, hashes, false):] {
		p.blocks[h] = true
	}
	w.open[d.Reservation] = p
	w.order = append(w.order, d.Reservation)
	return nil
}

// end ends a request, or reports its first token and stores most of its blocks.
func (w *promiseWorld) end(token bool) {
	at := w.rnd.IntN(len(w.order))
	res := w.order[at]
	w.order = append(w.order[:at], w.order[at+1:]...)
	if token {
		w.r.Progress(w.now, res, 0, 1)
		for _, h := range w.open[res].hashes {
			if w.open[res].blocks[h] && w.rnd.IntN(8) > 0 {
				w.index[w.open[res].worker][h] = true
			}
		}
	} else {
		w.r.Release(w.now, res)
	}
	delete(w.open, res)
}

func (w *promiseWorld) remove() {
	at, h := worker1(w.rnd.IntN(3)), w.prompts[w.rnd.IntN(len(w.prompts))]
	h = h[w.rnd.IntN(len(h)):][:1]
	w.r.Removed(at, h)
	delete(w.index[at], h[0])
	for _, p := range w.open {
		if p.worker == at {
			p.cut(h[0])
		}
	}
}

func (w *promiseWorld) clear() {
	at := worker1(w.rnd.IntN(3))
	w.r.Cleared(at)
	clear(w.index[at])
	for _, p := range w.open {
		if p.worker == at {
			clear(p.blocks)
		}
	}
}
