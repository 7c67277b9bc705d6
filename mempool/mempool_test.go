package mempool

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

func TestGrantIsAllOrNothing(t *testing.T) {
	p, err := NewPool(4)
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Grant(3, nil)
	if err != nil || len(got) != 3 || p.FreePages() != 1 || p.LeasedPages() != 3 {
		t.Fatalf("granted %v, %v; free %d leased %d", got, err, p.FreePages(), p.LeasedPages())
	}
	if more, err := p.Grant(2, got); !errors.Is(err, ErrExhausted) || len(more) != 3 || p.FreePages() != 1 {
		t.Fatalf("over-grant gave %v, %v", more, err)
	}
	p.Return(got)
	if err := p.Check(); err != nil || p.FreePages() != 4 {
		t.Fatalf("after return: %v, %d free", err, p.FreePages())
	}
}

func TestNewPoolRefusesNoPages(t *testing.T) {
	if _, err := NewPool(0); err == nil {
		t.Fatal("a pool without pages was made")
	}
}

// mustPanic runs f and requires a panic whose text holds want.
func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if r := recover(); r == nil || !strings.Contains(r.(string), want) {
			t.Errorf("panic %v, want one with %q", r, want)
		}
	}()
	f()
}

func TestDoubleReturnPanics(t *testing.T) {
	p, _ := NewPool(2)
	got, _ := p.Grant(1, nil)
	p.Return(got)
	mustPanic(t, "not leased", func() { p.Return(got) })
	mustPanic(t, "not leased", func() { p.Return([]kv.PageID{7}) })
}

func TestLeaseRefusesWrongOwner(t *testing.T) {
	l := NewLease(4)
	l.Add([]kv.PageID{0, 1})
	held, ok := l.Hold(2, nil)
	if !ok {
		t.Fatal("nothing held")
	}
	if _, ok := l.Hold(1, nil); ok {
		t.Fatal("held a page that is not there")
	}
	l.Publish(held[:1])
	mustPanic(t, "but is cached", func() { l.Drop(held[:1]) })
	mustPanic(t, "but is held", func() { l.Evicted(held[1:]) })
	mustPanic(t, "but is absent", func() { l.Drop([]kv.PageID{3}) })
}

func TestCheckSeesPlantedFaults(t *testing.T) {
	p, _ := NewPool(3)
	p.free[0] = p.free[1]
	if p.Check() == nil {
		t.Error("a page free twice passes the pool's check")
	}
	l := NewLease(3)
	l.Add([]kv.PageID{0, 1})
	l.state[0] = cached
	if l.Check() == nil {
		t.Error("a page that changed hands unseen passes the lease's check")
	}
}

// TestConservation drives pool and lease at random against plain sets.
func TestConservation(t *testing.T) {
	const capacity = 50
	rng := rand.New(rand.NewPCG(1, 2))
	p, _ := NewPool(capacity)
	l := NewLease(capacity)
	var held, cached []kv.PageID
	for step := range 20_000 {
		switch rng.IntN(6) {
		case 0:
			if pages, err := p.Grant(rng.IntN(8), nil); err == nil {
				l.Add(pages)
			}
		case 1:
			p.Return(l.GiveBack(rng.IntN(8), nil))
		case 2:
			held, _ = l.Hold(rng.IntN(5), held)
		case 3:
			n := rng.IntN(len(held) + 1)
			l.Publish(held[n:])
			cached = append(cached, held[n:]...)
			held = held[:n]
		case 4:
			n := rng.IntN(len(held) + 1)
			l.Drop(held[n:])
			held = held[:n]
		case 5:
			n := rng.IntN(len(cached) + 1)
			l.Evicted(cached[n:])
			cached = cached[:n]
		}
		if l.HeldPages() != len(held) || l.CachedPages() != len(cached) || l.GrantedPages() != p.LeasedPages() {
			t.Fatalf("step %d: held %d of %d, cached %d of %d, granted %d of %d", step,
				l.HeldPages(), len(held), l.CachedPages(), len(cached), l.GrantedPages(), p.LeasedPages())
		}
		if err := errors.Join(p.Check(), l.Check()); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
	}
}

func TestLeaseDoesNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the full walk allocates")
	}
	l := NewLease(64)
	pages := make([]kv.PageID, 0, 64)
	p, _ := NewPool(64)
	all, _ := p.Grant(64, nil)
	l.Add(all)
	if n := testing.AllocsPerRun(100, func() {
		pages, _ = l.Hold(32, pages[:0])
		l.Drop(pages)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// TestStoreMetricsString checks the text that people and logs see.
func TestStoreMetricsString(t *testing.T) {
	m := StoreMetrics{Extents: 3, Bytes: 300, CapacityBytes: 1000, OpenOps: 1, Damaged: 2}
	m.Puts = OpMetrics{OK: 4, Bytes: 400, Time: 5 * time.Millisecond}
	m.Gets = OpMetrics{OK: 1, Missed: 2, Late: 3, Canceled: 4, Failed: 5}
	const want = `extents 3  bytes 300 of 1000 (30.0%)  open 1  damaged 2
put    ok 4  missed 0  late 0  canceled 0  failed 0  bytes 400  time 5ms
get    ok 1  missed 2  late 3  canceled 4  failed 5  bytes 0  time 0s
drop   ok 0  missed 0  late 0  canceled 0  failed 0  bytes 0  time 0s
probe  ok 0  missed 0  late 0  canceled 0  failed 0  bytes 0  time 0s
flush  ok 0  missed 0  late 0  canceled 0  failed 0  bytes 0  time 0s
`
	if m.String() != want {
		t.Errorf("got\n%s", m)
	}
}
