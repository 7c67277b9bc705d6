package budget

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const mib = 1 << 20

// TestOpenWaits: large accounts share three quarters of the budget, the rest wait in their order of
// arrival and get room as soon as there is enough.
func TestOpenWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(8 * mib)
		var first Account
		if err := first.Open(t.Context(), b, 4*mib); err != nil {
			t.Fatal(err)
		}
		var order []int
		var all sync.WaitGroup
		var mu sync.Mutex
		for i, size := range []int{5 * mib, 1 * mib} {
			all.Go(func() {
				var a Account
				if err := a.Open(t.Context(), b, size); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				a.Close()
			})
			synctest.Wait()
		}
		if len(order) > 0 {
			t.Fatalf("%v did not wait", order)
		}
		first.Close()
		all.Wait()
		slices.Sort(order)
		if b.Used() != 0 || !slices.Equal(order, []int{0, 1}) {
			t.Errorf("%d bytes are left, %v opened", b.Used(), order)
		}
	})
}

// TestOpenGivesUp: an account that finds no room in time holds nothing and lets the next one in.
func TestOpenGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(8 * mib)
		var first, late, next Account
		if err := first.Open(t.Context(), b, 4*mib); err != nil {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		opened := make(chan error)
		go func() {
			time.Sleep(time.Millisecond) // of the fake clock: late arrives first
			opened <- next.Open(t.Context(), b, 2*mib)
		}()
		if err := late.Open(soon, b, 6*mib); !errors.Is(err, ErrFull) {
			t.Errorf("opened: %v", err)
		}
		if err := <-opened; err != nil {
			t.Error(err)
		}
		if late.Close(); b.Used() != 6*mib {
			t.Errorf("%d bytes are used", b.Used())
		}
	})
}

// TestSmallPass: small accounts, and those that grow, pass large ones that wait.
func TestSmallPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(8 * mib)
		var first, second Account
		if err := first.Open(t.Context(), b, 6*mib); err != nil {
			t.Fatal(err)
		}
		opened := make(chan error)
		go func() { opened <- second.Open(t.Context(), b, 6*mib) }()
		synctest.Wait()
		var little Account
		if err := errors.Join(little.Open(t.Context(), b, small), first.Add(mib)); err != nil {
			t.Error(err)
		}
		if err := first.Add(mib); !errors.Is(err, ErrFull) || first.used != 7*mib {
			t.Errorf("grown to %d: %v", first.used, err)
		}
		little.Close()
		if first.Shrink(mib); b.Used() != mib {
			t.Errorf("%d bytes are used", b.Used())
		}
		first.Close()
		if err := <-opened; err != nil {
			t.Error(err)
		}
	})
}

// TestLargerThanAll: what never fits waits for all that large accounts may use.
func TestLargerThanAll(t *testing.T) {
	b := New(8 * mib)
	var a Account
	if err := a.Open(t.Context(), b, 100*mib); err != nil || a.used != 6*mib {
		t.Fatalf("%v, %d bytes", err, a.used)
	}
	if err := a.Add(2*mib + 1); !errors.Is(err, ErrNever) {
		t.Errorf("more than all: %v", err)
	}
	var b2 Account
	if err := b2.Extend(b, 8*mib+1); !errors.Is(err, ErrNever) {
		t.Errorf("more than all: %v", err)
	}
	if err := errors.Join(a.Add(2*mib), b2.Extend(b, 0)); err != nil {
		t.Error(err)
	}
	if err := b2.Add(1); !errors.Is(err, ErrFull) {
		t.Errorf("one byte too many: %v", err)
	}
	a.Close()
	a.Close()
	if err := a.Add(100 * mib); err != nil || b.Used() != 0 {
		t.Errorf("%v, %d bytes are used", err, b.Used())
	}
}

// TestTogether: whatever many accounts do at once, the budget is never exceeded and ends at 0.
func TestTogether(t *testing.T) {
	b := New(mib)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for range 300 {
				var a Account
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(4) == 0 {
					cancel()
				}
				if a.Open(ctx, b, random.IntN(mib)) == nil {
					for range random.IntN(4) {
						a.Add(random.IntN(small))
					}
					if used := b.Used(); used > b.Most() || used < a.used {
						t.Errorf("%d bytes are used, of %d; %d by one account", used, b.Most(), a.used)
					}
					a.Shrink(random.IntN(small))
				}
				a.Close()
				cancel()
			}
		})
	}
	all.Wait()
	if b.Used() != 0 || len(b.waiting) != 0 {
		t.Errorf("%d bytes are left, %d wait", b.Used(), len(b.waiting))
	}
}

// TestNoAllocation: an account costs no memory of its own.
func TestNoAllocation(t *testing.T) {
	b, ctx := New(mib), t.Context()
	if n := testing.AllocsPerRun(100, func() {
		var a Account
		if a.Open(ctx, b, 100) != nil || a.Add(10) != nil {
			t.Error("full")
		}
		a.Close()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
