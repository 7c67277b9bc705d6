package router

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// TestBuckets: the first stage chooses a bucket, by turn or by the prompt's beginning, and
// the router chooses among that bucket's workers.
func TestBuckets(t *testing.T) {
	r := newRouter(t, Config{Policy: CostLeastLoaded})
	for i := range 8 {
		if err := r.Join(0, worker1(i), WorkerSpec{BlockTokens: 16, Pool: PoolID(1 + i%4)}); err != nil {
			t.Fatal(err)
		}
	}
	turn, err := NewBuckets(4, ByTurn, 1)
	if err != nil {
		t.Fatal(err)
	}
	prefix, err := NewBuckets(4, ByPrefix, 2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		req := Request{PromptTokens: 16 * 3, Hashes: hashes(i, 100+i, 3)}
		if next, byTurn := turn.Peek(req.Hashes); next != i%4 || !byTurn {
			t.Errorf("turn %d would go to %d", i, next)
		}
		at := turn.Pick(req.Hashes)
		req.Pool = PoolID(1 + at)
		d, err := r.Select(0, &req)
		if err != nil || at != i%4 || (d.Worker != worker1(at) && d.Worker != worker1(at+4)) || !r.Release(0, d.Reservation) {
			t.Errorf("turn %d went to %d: %+v, %v", i, at, d, err)
		}
	}
	counts := make([]int, 4)
	for i := range 400 {
		at := prefix.Pick(hashes(i, 100+i, 3))
		counts[at]++
		for _, same := range [][]kv.BlockHash{hashes(i, 100+i), hashes(i, 100+i, 8, 9)} {
			if got := prefix.Pick(same); got != at {
				t.Fatalf("prompt %d goes to %d and %d", i, at, got)
			}
		}
	}
	if slices.Min(counts) < 70 || slices.Max(counts) > 130 {
		t.Errorf("400 prompts are %v", counts)
	}
	if a, b := prefix.Pick(nil), prefix.Pick(nil); a == b {
		t.Errorf("without hashes both go to %d", a)
	}
	for _, bad := range []func() (*Buckets, error){
		func() (*Buckets, error) { return NewBuckets(0, ByTurn, 1) },
		func() (*Buckets, error) { return NewBuckets(MaxBuckets+1, ByTurn, 1) },
		func() (*Buckets, error) { return NewBuckets(4, 9, 1) },
		func() (*Buckets, error) { return NewBuckets(4, ByPrefix, 0) },
	} {
		if _, err := bad(); err == nil {
			t.Error("bad buckets are made")
		}
	}
}

// dealt returns the bucket of each worker after Deal into n buckets.
func dealt(workers []kv.WorkerID, n int) map[kv.WorkerID]int {
	by := map[kv.WorkerID]int{}
	for i, b := range Deal(workers, n, nil) {
		by[workers[i]] = b
	}
	return by
}

// checkDealt fails if a deal is uneven, names a bucket out of range, or depends on the
// order of the workers.
func checkDealt(workers []kv.WorkerID, n int, by map[kv.WorkerID]int, shuffle *rand.Rand) error {
	sizes := make([]int, n)
	for _, w := range workers {
		b, ok := by[w]
		if !ok || b < 0 || b >= n {
			return fmt.Errorf("worker %d is in bucket %d of %d", w, b, n)
		}
		sizes[b]++
	}
	if slices.Max(sizes)-slices.Min(sizes) > 1 {
		return fmt.Errorf("%d workers are in buckets of %v", len(workers), sizes)
	}
	again := slices.Clone(workers)
	shuffle.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
	for w, b := range dealt(again, n) {
		if by[w] != b {
			return fmt.Errorf("worker %d is in bucket %d, and with the workers in another order in %d", w, by[w], b)
		}
	}
	return nil
}

// moved counts the workers that are in a and b with different buckets.
func moved(a, b map[kv.WorkerID]int) (n int) {
	for w, at := range a {
		if to, ok := b[w]; ok && to != at {
			n++
		}
	}
	return n
}

// TestDeal: sizes, order, and the number of workers that move when one joins or leaves;
// the comment of Deal has these figures.
func TestDeal(t *testing.T) {
	for _, tc := range []struct {
		workers, buckets int
		most             float64 // moved workers, on average
	}{{1, 1, 0}, {3, 8, 2}, {8, 2, 0.6}, {8, 4, 1.2}, {64, 4, 1.25}, {64, 8, 1.95}, {64, 16, 2.6}, {66, 16, 2.6}} {
		chance := rand.New(rand.NewPCG(1, uint64(tc.workers*100+tc.buckets)))
		const rounds = 300
		sum := 0
		for range rounds {
			workers := make([]kv.WorkerID, tc.workers)
			for i := range workers {
				workers[i] = kv.WorkerID(chance.Uint64())
			}
			all, without := dealt(workers, tc.buckets), dealt(workers[1:], tc.buckets)
			if err := checkDealt(workers, tc.buckets, all, chance); err != nil {
				t.Fatal(err)
			}
			sum += moved(all, without)
		}
		mean := float64(sum) / rounds
		t.Logf("%d workers in %d buckets: %.2f others move", tc.workers, tc.buckets, mean)
		if mean > tc.most {
			t.Errorf("%d workers in %d buckets: %.2f others move on average, want at most %v", tc.workers, tc.buckets, mean, tc.most)
		}
	}
	if got := Deal(nil, 3, []int{7}); !slices.Equal(got, []int{7}) {
		t.Errorf("no workers are dealt as %v", got)
	}
}

func FuzzDeal(f *testing.F) {
	f.Add(uint64(1), uint8(9), uint8(3))
	f.Add(uint64(2), uint8(0), uint8(1))
	f.Add(uint64(3), uint8(2), uint8(64))
	f.Fuzz(func(t *testing.T, seed uint64, n, buckets uint8) {
		b := 1 + int(buckets)%MaxBuckets
		chance := rand.New(rand.NewPCG(seed, 1))
		workers := make([]kv.WorkerID, n)
		for i := range workers {
			workers[i] = kv.WorkerID(seed + uint64(i)) // near each other, as no hashes are
		}
		if err := checkDealt(workers, b, dealt(workers, b), chance); err != nil {
			t.Fatal(err)
		}
	})
}

// TestPools: a request goes only to workers of its pool, waits only for them, and sees
// workers that move into the pool.
func TestPools(t *testing.T) {
	r := newRouter(t, Config{Policy: CostLeastLoaded, MaxModels: 2, SessionTTL: 1000})
	join := func(i int, pool PoolID, models ...ModelID) {
		t.Helper()
		if err := r.Join(0, worker1(i), WorkerSpec{BlockTokens: 16, MaxRequests: 1, Pool: pool, Models: models}); err != nil {
			t.Fatal(err)
		}
	}
	join(0, 1, 11, 12) // pools count no models: MaxModels is 2
	join(1, 2, 11)
	join(2, 0, 11)
	to := func(pool PoolID, model ModelID) (Decision, error) {
		return r.Select(0, &Request{PromptTokens: 16, Pool: pool, Model: model, Session: 5})
	}
	for _, tc := range []struct {
		pool  PoolID
		model ModelID
		want  int // below 0: none
	}{{1, 11, 0}, {1, 12, 0}, {1, 0, 0}, {2, 11, 1}, {2, 12, -1}, {3, 11, -1}, {2, 0, 1}, {0, 12, 0}} {
		d, err := to(tc.pool, tc.model)
		switch {
		case tc.want < 0 && !errors.Is(err, ErrNoWorkers), tc.want >= 0 && (err != nil || d.Worker != worker1(tc.want)):
			t.Errorf("pool %d, model %d: %v, %v, want worker %d", tc.pool, tc.model, d.Worker, err, tc.want)
		case err == nil:
			r.Release(0, d.Reservation)
		}
	}
	// Pool 1 is busy. Free workers of other pools do not help a request that waits for it.
	first, err := to(1, 11)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := to(1, 11); !errors.Is(err, ErrBusy) {
		t.Fatalf("a busy pool says %v", err)
	}
	var tickets []Ticket
	for _, pool := range []PoolID{1, 2} {
		if pool == 2 {
			if _, err := to(2, 11); err != nil {
				t.Fatal(err)
			}
		}
		ticket, err := r.Wait(0, &Request{PromptTokens: 16, Pool: pool, Model: 11})
		if err != nil {
			t.Fatal(err)
		}
		tickets = append(tickets, ticket)
	}
	if _, _, ok := r.Next(0); ok {
		t.Error("somebody could go while both pools are busy")
	}
	if err := r.SetPool(0, worker1(2), 2); err != nil {
		t.Fatal(err)
	}
	ticket, _, ok := r.Next(0)
	if !ok || ticket != tickets[1] {
		t.Fatalf("worker 2 came into pool 2: %v, %v goes, want %v", ticket, ok, tickets[1])
	}
	if d, err := r.Take(0, ticket, nil); err != nil || d.Worker != worker1(2) {
		t.Errorf("took %+v, %v", d, err)
	}
	// The worker of pool 1 moves away while a request waits for it.
	if err := r.SetPool(0, worker1(0), 2); err != nil {
		t.Fatal(err)
	}
	if ticket, _, ok = r.Next(0); !ok || ticket != tickets[0] {
		t.Fatalf("%v, %v", ticket, ok)
	}
	if _, err := r.Take(0, ticket, nil); !errors.Is(err, ErrNoWorkers) {
		t.Errorf("of an empty pool: %v", err)
	}
	if !r.Release(0, first.Reservation) { // it moved with its requests
		t.Error("the reservation went with the pool")
	}
	if pool := r.SessionPool(0, &Request{Session: 5}); pool != 2 {
		t.Errorf("the session is in pool %d", pool)
	}
	if pool := r.SessionPool(0, &Request{Session: 6}); pool != 0 {
		t.Errorf("no session is in pool %d", pool)
	}
	if err := r.SetPool(0, worker1(9), 2); !errors.Is(err, ErrUnknownWorker) {
		t.Errorf("an unknown worker: %v", err)
	}
	if err := r.Join(0, worker1(5), WorkerSpec{BlockTokens: 16, Models: []ModelID{13}}); !errors.Is(err, ErrWorkerSpec) {
		t.Errorf("a model more than MaxModels: %v", err)
	}
	for i := range 3 {
		r.Leave(0, worker1(i), nil)
	}
	if len(r.groups) != 1 {
		t.Errorf("empty groups are left: %v", r.groups)
	}
}
