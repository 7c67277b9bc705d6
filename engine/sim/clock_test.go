package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestClockRunsByTimeThenOrder(t *testing.T) {
	c := NewClock()
	var got []string
	at := func(ms int, name string) EventID {
		return c.At(time.Duration(ms)*time.Millisecond, func() { got = append(got, name) })
	}
	at(5, "e")
	at(1, "a")
	at(3, "b")
	dropped := at(3, "dropped")
	at(3, "c")
	c.At(4*time.Millisecond, func() {
		at(2, "late, so now") // is over
		at(4, "d")
		if c.Now() != 4*time.Millisecond {
			t.Errorf("an event at 4ms runs at %v", c.Now())
		}
	})
	if !c.Cancel(dropped) || c.Cancel(dropped) || c.Cancel(0) || c.Cancel(1<<40|7) {
		t.Error("Cancel is true for other than one pending event")
	}
	if c.Len() != 5 {
		t.Errorf("%d events are pending", c.Len())
	}
	for c.Step() {
	}
	if want := []string{"a", "b", "c", "late, so now", "d", "e"}; !slices.Equal(got, want) {
		t.Errorf("events ran as %q, want %q", got, want)
	}
	if c.Len() != 0 || c.Now() != 5*time.Millisecond {
		t.Errorf("after the last event it is %v", c.Now())
	}
}

func TestClockIDsAreNotReused(t *testing.T) {
	c := NewClock()
	old := c.At(1, func() {})
	c.Step()
	ran := false
	c.At(2, func() { ran = true })
	if c.Cancel(old) {
		t.Error("the id of an event that ran cancels another")
	}
	var self EventID
	self = c.At(3, func() {
		if c.Cancel(self) {
			t.Error("an event that runs can be cancelled")
		}
	})
	for c.Step() {
	}
	if !ran {
		t.Error("an event is lost")
	}
}

// TestClockAgainstSort compares random schedules with a stable sort.
func TestClockAgainstSort(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		type item struct {
			at time.Duration
			id EventID
			n  int
		}
		c := NewClock()
		var want []item
		var got []int
		for n := range 1 + r.IntN(60) {
			at := time.Duration(r.IntN(12))
			want = append(want, item{at, c.At(at, func() { got = append(got, n) }), n})
			if i := r.IntN(len(want)); r.IntN(4) == 0 {
				if !c.Cancel(want[i].id) {
					t.Fatal("a pending event can't be cancelled")
				}
				want = slices.Delete(want, i, i+1)
				if len(want) == 0 {
					break
				}
			}
		}
		slices.SortStableFunc(want, func(a, b item) int { return int(a.at - b.at) })
		for c.Step() {
		}
		if !slices.EqualFunc(got, want, func(g int, w item) bool { return g == w.n }) {
			t.Fatalf("events ran as %v, want %v", got, want)
		}
	}
}

func TestClockAllocatesNothing(t *testing.T) {
	c := NewClock()
	f := func() {}
	step := func() {
		for i := range 32 {
			id := c.At(c.Now()+time.Duration(i%7), f)
			if i%5 == 0 {
				c.Cancel(id)
			}
		}
		for c.Step() {
		}
	}
	step()
	if n := testing.AllocsPerRun(20, step); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
