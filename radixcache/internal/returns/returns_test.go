package returns

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestBins checks that each age is in the bin that its start and the next one's enclose.
func TestBins(t *testing.T) {
	for _, age := range []uint32{0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 1000, 1 << 20, 1<<20 + 1<<19, 1<<31 - 1, 1 << 31, math.MaxUint32} {
		b := binOf(age)
		if b < 0 || b >= bins || uint64(age) < Start(b) || b < bins-1 && uint64(age) >= Start(b+1) && Start(b+1) > Start(b) {
			t.Errorf("age %d is in bin %d, [%d, %d)", age, b, Start(b), Start(b+1))
		}
	}
	for b := range bins {
		if Start(b+1) < Start(b) {
			t.Errorf("bin %d starts at %d, the next at %d", b, Start(b), Start(b+1))
		}
	}
}

// TestPriorIsLRU checks that without any history the worth falls as the age grows.
func TestPriorIsLRU(t *testing.T) {
	c := New(New(nil))
	for b := 1; b < bins-2; b++ { // the last bins end where estimates end
		now, _ := c.Worth(uint32(Start(b)))
		if before, _ := c.Worth(uint32(Start(b)) - 1); now > before {
			t.Errorf("age %d is worth %d, the one before %d", Start(b), now, before)
		}
	}
	early, _ := c.Worth(100)
	if late, _ := c.Worth(100_000); late >= early {
		t.Errorf("age 100 is worth %d, age 100,000 %d", early, late)
	}
}

// steepest is Worth's definition, without the hull.
func steepest(c *Class) (rates [bins]float64) {
	var hazard [bins]float64
	c.hazards(&hazard)
	for b := range bins {
		alive, spent, back := 1.0, 0.0, 0.0
		for e := b; e < bins; e++ {
			if e == 2 {
				continue // no age is in it
			}
			next := alive * (1 - hazard[e])
			spent += float64(Start(e+1)-Start(e)) * (alive + next) / 2
			back += alive - next
			alive = next
			if spent > 0 {
				rates[b] = max(rates[b], back/spent)
			}
		}
	}
	return rates
}

// TestWorthIsSteepestChord compares Worth with its definition for random histories.
func TestWorthIsSteepestChord(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		kind := New(nil)
		c := New(kind)
		for range rng.IntN(300) {
			age := uint32(rng.Uint64N(1 << rng.IntN(32)))
			if rng.IntN(3) > 0 {
				c.Returned(age)
			} else {
				c.Left(age)
			}
			kind.Returned(uint32(rng.Uint64N(1 << rng.IntN(32))))
		}
		want := steepest(c)
		c.Learn()
		for b := range bins {
			if b == 2 {
				continue // no age is in it
			}
			w := math.Round(Octave * (math.Log2(max(want[b], 1e-12)) + 44))
			if got := float64(c.worth[b]); math.Abs(got-min(w, MaxWorth)) > 1 {
				t.Fatalf("bin %d: worth %v, want %v", b, got, w)
			}
		}
	}
}

// TestLearnsTwoGaps checks the order of ages where things come back after 3 s or after 60 s, at 64 ticks a second:
// one that has just left is worth most, one that missed the first chance least, and it rises up to the second.
func TestLearnsTwoGaps(t *testing.T) {
	c := New(New(nil))
	for range 400 {
		c.Returned(3 * 64)
		c.Returned(60 * 64)
	}
	c.Learn()
	at := func(seconds uint32) uint16 { w, _ := c.Worth(seconds * 64); return w }
	if !(at(1) > at(6) && at(50) > at(30) && at(30) > at(6) && at(50) > at(1000)) {
		t.Errorf("worth after 1, 6, 30, 50 and 1000 s: %d, %d, %d, %d, %d", at(1), at(6), at(30), at(50), at(1000))
	}
}

// TestCensoring checks that things that left early, such as those that were evicted, do not lower the worth of later
// ages, and that things that stay idle do.
func TestCensoring(t *testing.T) {
	gone, idle := New(New(nil)), New(New(nil))
	for range 100 {
		gone.Returned(1000)
		idle.Returned(1000)
	}
	gone.Learn()
	idle.Learn()
	before, _ := gone.Worth(900)
	for range 1000 {
		gone.Left(10)
		idle.Idle(5000)
	}
	gone.Learn()
	idle.Learn()
	if w, _ := gone.Worth(900); w != before {
		t.Errorf("after 1,000 that left at age 10, age 900 is worth %d, before %d", w, before)
	}
	if w, _ := idle.Worth(900); w >= before {
		t.Errorf("with 1,000 idle at age 5,000, age 900 is worth %d, without %d", w, before)
	}
}

// TestWorthChangesWhenItSays checks that the worth stays as it is until the age that Worth returns.
func TestWorthChangesWhenItSays(t *testing.T) {
	c := New(nil)
	for age := uint32(0); age < 5000; {
		worth, until := c.Worth(age)
		if until <= uint64(age) {
			t.Fatalf("at age %d the worth changes at %d", age, until)
		}
		for ; uint64(age) < until; age++ {
			if w, u := c.Worth(age); w != worth || u != until {
				t.Fatalf("age %d is worth %d until %d, want %d until %d", age, w, u, worth, until)
			}
		}
	}
}
