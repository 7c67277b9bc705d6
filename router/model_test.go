package router

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// naiveRequest is a reservation in the model, whose only state is a list of these.
type naiveRequest struct {
	worker                             kv.Rank
	hashes                             []kv.BlockHash
	prompt, uncached, computed, output int
	private                            int
	decoding                           bool
	touched                            time.Duration
}

// naiveLoads sums the loads again at each call.
func naiveLoads(workers map[kv.Rank]Health, active map[Reservation]*naiveRequest, blockTokens int) map[kv.Rank]Load {
	loads := map[kv.Rank]Load{}
	blocks := map[kv.Rank]map[string]bool{}
	for w, health := range workers {
		loads[w] = Load{Worker: w, Health: health}
		blocks[w] = map[string]bool{}
	}
	for _, q := range active {
		l := loads[q.worker]
		l.Requests++
		if !q.decoding {
			l.Prefilling++
			l.PrefillTokens += q.uncached - q.computed
		}
		l.ContextTokens += q.prompt + q.output
		l.Blocks += q.private + kv.CeilPages(q.prompt+q.output, blockTokens) - kv.CeilPages(q.prompt, blockTokens)
		for _, p := range prefixes(q.hashes) {
			blocks[q.worker][p] = true
		}
		loads[q.worker] = l
	}
	for w, l := range loads {
		l.Blocks += len(blocks[w])
		loads[w] = l
	}
	return loads
}

// world plays the calls of a script on a router and on the model.
type world struct {
	t       *testing.T
	r       *Router
	now     time.Duration
	workers map[kv.Rank]Health
	specs   map[kv.Rank]WorkerSpec
	active  map[Reservation]*naiveRequest
	made    []Reservation // all that ever were
	tickets []Ticket
	pending map[Ticket]*queued
	drained []Event          // by the last Drain
	were    [][]kv.BlockHash // their hashes then
	script  []byte
}

// queued is a waiting request with its time of arrival.
type queued struct {
	Request
	since time.Duration
}

// may reports whether by the naive model's loads any worker may run req, and whether one
// of them is free.
func (w *world) may(req *Request) (any, free bool) {
	loads := naiveLoads(w.workers, w.active, 4)
	for at, health := range w.workers {
		spec, l := w.specs[at], loads[at]
		if health != Healthy || slices.Contains(req.Avoid, at) || req.Among != nil && !slices.Contains(req.Among, at.Worker) || req.Pinned != nil && *req.Pinned != at ||
			req.Model != 0 && !slices.Contains(spec.Models, req.Model) || req.Pool != 0 && spec.Pool != req.Pool {
			continue
		}
		any = true
		if l.Requests < spec.MaxRequests && l.PrefillTokens <= 2*spec.BatchTokens {
			free = true
		}
	}
	return any, free
}

// next returns the first waiting request, in order, whose workers are not all busy.
func (w *world) next() (Ticket, bool) {
	order := slices.SortedFunc(maps.Keys(w.pending), func(a, b Ticket) int {
		p, q := w.pending[a], w.pending[b]
		return cmp.Or(cmp.Compare(p.since, q.since), cmp.Compare(a.id, b.id))
	})
	for _, ticket := range order {
		if any, free := w.may(&w.pending[ticket].Request); (free || !any) && len(w.active) < worldActive {
			return ticket, true
		}
	}
	return Ticket{}, false
}

// refused reports whether a new request must wait.
func (w *world) refused(req *Request) bool {
	if ticket, ok := w.next(); ok {
		if q := w.pending[ticket]; q.since <= w.now {
			return true
		}
	}
	any, free := w.may(req)
	return any && !free
}

const worldActive = 40

const worldExpiry = 40 * second

func (w *world) take(n int) int {
	if len(w.script) == 0 {
		return 0
	}
	b := w.script[0]
	w.script = w.script[1:]
	return int(b) % n
}

func (w *world) worker() kv.Rank {
	return kv.Rank{Worker: kv.WorkerID(w.take(4)), DP: uint32(w.take(2))}
}

func (w *world) request() Request {
	req := Request{PromptTokens: 1 + w.take(90), Session: uint64(w.take(4)), ExpectedOutput: w.take(40)}
	for range w.take(1 + req.PromptTokens/4) {
		req.Hashes = append(req.Hashes, kv.BlockHash(1+w.take(3)))
	}
	switch w.take(8) {
	case 0:
		pin := w.worker()
		req.Pinned = &pin
	case 1:
		for range 1 + w.take(5) {
			req.Avoid = append(req.Avoid, w.worker())
		}
	case 2:
		req.Among = []kv.WorkerID{}
		for range w.take(4) {
			req.Among = append(req.Among, w.worker().Worker)
		}
		slices.Sort(req.Among)
	}
	req.Model, req.Pool = ModelID(max(0, w.take(8)-4)), PoolID(max(0, w.take(6)-3))
	for range w.take(4) {
		req.Overlaps = append(req.Overlaps, Overlap{Worker: w.worker(), Device: w.take(12), Host: w.take(3), Disk: w.take(2)})
	}
	return req
}

func (w *world) chosen(d Decision, req *Request) {
	if health, ok := w.workers[d.Worker]; !ok || health != Healthy || slices.Contains(req.Avoid, d.Worker) ||
		req.Among != nil && !slices.Contains(req.Among, d.Worker.Worker) ||
		req.Model != 0 && !slices.Contains(w.specs[d.Worker].Models, req.Model) || req.Pinned != nil && *req.Pinned != d.Worker ||
		req.Pool != 0 && w.specs[d.Worker].Pool != req.Pool {
		w.t.Fatalf("%v was chosen for %+v", d.Worker, req)
	}
	if _, ok := w.active[d.Reservation]; ok {
		w.t.Fatalf("reservation %v is made twice", d.Reservation)
	}
	q := &naiveRequest{worker: d.Worker, hashes: slices.Clone(req.Hashes), prompt: req.PromptTokens, touched: w.now}
	overlap := 0
	for _, o := range req.Overlaps {
		if o.Worker == d.Worker {
			overlap = o.Blocks() // the last one counts
		}
	}
	if overlap != d.Overlap.Blocks() {
		w.t.Fatalf("the overlap is %+v, want %d blocks", d.Overlap, overlap)
	}
	q.uncached = max(0, req.PromptTokens-4*overlap)
	w.active[d.Reservation] = q
	w.made = append(w.made, d.Reservation)
}

func (w *world) ended(res Reservation, did bool) {
	if _, want := w.active[res]; did != want {
		w.t.Fatalf("ending %v is %v, want %v", res, did, want)
	}
	delete(w.active, res)
}

// any returns a reservation that was made at some time; most have ended.
func (w *world) any() Reservation {
	if len(w.made) == 0 {
		return Reservation{}
	}
	back := 1 + w.take(min(len(w.made), 12))
	return w.made[len(w.made)-back]
}

// ask makes a request, which waits if it must.
func (w *world) ask() {
	req := w.request()
	must := w.refused(&req)
	d, err := w.r.Select(w.now, &req)
	if must != (err == ErrBusy) {
		w.t.Fatalf("%+v: %v, must wait: %v", req, err, must)
	}
	if err == nil {
		w.chosen(d, &req)
	} else if err == ErrBusy {
		if ticket, err := w.r.Wait(w.now, &req); err == nil {
			w.pending[ticket] = &queued{req, w.now}
			w.tickets = append(w.tickets, ticket)
			return // the router keeps the slices
		}
	}
	reuse(&req)
}

// join adds a worker or changes its spec.
func (w *world) join() {
	worker := w.worker()
	spec := WorkerSpec{BlockTokens: 4, BatchTokens: 40, MaxRequests: 1 + w.take(6), TotalBlocks: w.take(100), Pool: PoolID(w.take(4))}
	for range w.take(4) {
		spec.Models = append(spec.Models, ModelID(1+w.take(4)))
	}
	given := spec
	given.Models = slices.Clone(spec.Models)
	err := w.r.Join(w.now, worker, given)
	clear(given.Models) // the caller reuses them
	if err == nil {
		w.workers[worker], w.specs[worker] = Healthy, spec
	} else if _, ok := w.workers[worker]; ok {
		w.t.Fatal(err)
	}
}

func (w *world) step() {
	r := w.r
	switch op := w.take(16); op {
	case 0, 1, 2, 3, 4:
		w.ask()
	case 5, 6:
		res, computed, output := w.any(), w.take(100), w.take(3)*w.take(20)
		q, want := w.active[res]
		if got := r.Progress(w.now, res, computed, output); got != want {
			w.t.Fatalf("progress of %v is %v, want %v", res, got, want)
		}
		if want {
			q.touched = w.now
			q.output = max(q.output, output)
			if q.decoding = q.decoding || q.output > 0; !q.decoding {
				q.computed = min(q.uncached, max(q.computed, computed))
			}
		}
	case 7, 8:
		res := w.any()
		w.ended(res, r.Release(w.now, res))
	case 9:
		res := w.any()
		w.ended(res, r.Rollback(w.now, res))
	case 10:
		w.now += time.Duration(w.take(20)) * second
		var want []Reservation
		for res, q := range w.active {
			if w.now-q.touched >= worldExpiry {
				want = append(want, res)
			}
		}
		got := r.Expire(w.now, nil)
		for _, x := range got {
			if !slices.Contains(want, x.Reservation) {
				w.t.Fatalf("%v expired too early", x)
			}
			w.ended(x.Reservation, true)
		}
		if len(got) != len(want) {
			w.t.Fatalf("%d expired, want %d", len(got), len(want))
		}
	case 11:
		w.join()
	case 12:
		worker := w.worker()
		if w.take(3) == 0 {
			if pool := PoolID(w.take(4)); r.SetPool(w.now, worker, pool) == nil {
				spec := w.specs[worker]
				spec.Pool = pool
				w.specs[worker] = spec
			}
			break
		}
		if w.take(3) > 0 {
			health := Health(w.take(3))
			if r.SetHealth(w.now, worker, health) == nil {
				w.workers[worker] = health
			}
			break
		}
		for _, res := range r.Leave(w.now, worker, nil) {
			w.ended(res, true)
		}
		delete(w.workers, worker)
	case 13, 14:
		for {
			ticket, _, ok := r.Next(w.now)
			if !ok {
				break
			}
			req := w.pending[ticket].Request
			req.Overlaps = nil
			if d, err := r.Take(w.now, ticket, nil); err == nil {
				w.chosen(d, &req)
			} else if err != ErrNoWorkers {
				w.t.Fatalf("who is next is refused: %v", err)
			}
			reuse(&req)
			delete(w.pending, ticket)
		}
	case 15:
		if len(w.tickets) > 0 && w.take(2) == 0 {
			ticket := w.tickets[w.take(len(w.tickets))]
			_, want := w.pending[ticket]
			if r.Cancel(ticket) != want {
				w.t.Fatalf("cancelling %v is not %v", ticket, want)
			}
			delete(w.pending, ticket)
		}
	}
}

// reuse overwrites the slices of a request, which are its caller's after the call.
func reuse(req *Request) {
	clear(req.Hashes)
	clear(req.Overlaps)
	clear(req.Avoid)
	clear(req.Among)
}

// drain checks that the events of the last Drain are as they were, and sometimes drains again:
// another goroutine sends them meanwhile.
func (w *world) drain() {
	for i, ev := range w.drained {
		if !slices.Equal(ev.Hashes, w.were[i]) {
			w.t.Fatalf("%+v was drained with hashes %v", ev, w.were[i])
		}
	}
	if len(w.script)%5 == 0 {
		w.drained, w.were = w.r.Drain(nil), nil
		for _, ev := range w.drained {
			w.were = append(w.were, slices.Clone(ev.Hashes))
		}
	}
}

func (w *world) compare() {
	w.t.Helper()
	w.drain()
	if err := w.r.Check(); err != nil {
		w.t.Fatal(err)
	}
	ticket, _, ok := w.r.Next(w.now)
	if want, some := w.next(); ticket != want || ok != some {
		w.t.Fatalf("%v goes next, want %v", ticket, want)
	}
	want := naiveLoads(w.workers, w.active, 4)
	got := w.r.Loads(w.now, nil)
	if len(got) != len(want) || w.r.Queued() != len(w.pending) || w.r.Metrics().Active != len(w.active) {
		w.t.Fatalf("%d workers, %d waiting, %d active; want %d, %d, %d", len(got), w.r.Queued(), w.r.Metrics().Active, len(want), len(w.pending), len(w.active))
	}
	for _, l := range got {
		pending := l.Pending
		l.Pending = 0
		if l != want[l.Worker] || pending < 0 || l.Prefilling == 0 && pending != 0 {
			w.t.Fatalf("%+v, want %+v", l, want[l.Worker])
		}
	}
}

func playWorld(t *testing.T, policy Policy, script []byte) *world {
	t.Helper()
	weights := DefaultWeights()
	weights.Temperature = float64(len(script)%2) * 0.5
	w := &world{
		t: t, workers: map[kv.Rank]Health{}, active: map[Reservation]*naiveRequest{}, pending: map[Ticket]*queued{}, script: script,
		specs: map[kv.Rank]WorkerSpec{},
		r: newRouter(t, Config{
			BlockTokens: 4, Policy: policy, Weights: weights, MaxWorkers: 6, MaxActive: worldActive, MaxModels: 4, MaxQueued: 12, Expiry: worldExpiry, BusyFactor: 2,
			SessionTTL: 30 * second, MaxSessions: 2, Replica: 1, MaxJournal: 20,
		}),
	}
	for len(w.script) > 0 {
		w.step()
		w.compare()
	}
	return w
}

// TestLoadIsConserved: after any calls in any order, each worker's load is the sum over
// its active requests.
func TestLoadIsConserved(t *testing.T) {
	for seed := range uint64(120) {
		rng := rand.New(rand.NewPCG(seed, 7))
		script := make([]byte, 4000+seed%2)
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		w := playWorld(t, Policies()[int(seed)%len(Policies())], script)
		for _, res := range w.made {
			w.ended(res, w.r.Release(w.now, res))
		}
		w.compare()
		for _, l := range w.r.Loads(w.now, nil) {
			if l != (Load{Worker: l.Worker, Health: l.Health}) {
				t.Fatalf("seed %d: %+v is left of nothing", seed, l)
			}
		}
		if seed == 0 && len(w.made) < 50 {
			t.Fatalf("only %d were made", len(w.made))
		}
	}
}

func FuzzLoadIsConserved(f *testing.F) {
	f.Add(uint8(0), []byte{11, 1, 0, 3, 50, 0, 50, 1, 2, 3, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, policy uint8, script []byte) {
		if len(script) > 3000 {
			script = script[:3000]
		}
		playWorld(t, Policies()[int(policy)%len(Policies())], script)
	})
}

// TestEqualCallsGiveEqualChoices: two runs of a script give the same choices.
func TestEqualCallsGiveEqualChoices(t *testing.T) {
	for _, policy := range Policies() {
		play := func() string {
			rng := rand.New(rand.NewPCG(5, 5))
			script := make([]byte, 6001)
			for i := range script {
				script[i] = byte(rng.Uint32())
			}
			w := playWorld(t, policy, script)
			return fmt.Sprint(w.made, w.r.Metrics(), w.r.Loads(w.now, nil), slices.SortedFunc(maps.Keys(w.workers), kv.Rank.Compare))
		}
		if a, b := play(), play(); a != b {
			t.Errorf("%v: two runs differ:\n%s\n%s", policy, a, b)
		}
	}
}
