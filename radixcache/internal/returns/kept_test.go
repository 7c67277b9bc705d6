package returns

import "testing"

// TestKept checks that a length at which things come back without use costs worth, and no other length.
func TestKept(t *testing.T) {
	var k Kept
	limit, other := Length(4096), Length(3000)
	for range 2000 {
		k.Came(limit, false)
		k.Came(other, true)
	}
	if c := k.Cost(limit); c < 4*Octave {
		t.Errorf("what is never of use costs %d, want 4 octaves of %d", c, Octave)
	}
	if c := k.Cost(other) + k.Cost(Length(8000)); c != 0 {
		t.Errorf("what always is of use, or was never seen, costs %d", c)
	}
	for range 2000 {
		k.Came(limit, true)
	}
	if c := k.Cost(limit); c > Octave/4 {
		t.Errorf("after 2,000 uses a length still costs %d", c)
	}
	for _, n := range []int{-1, 0, 1, 1 << 30} {
		if l := Length(n); l >= keptBins {
			t.Errorf("%d tokens have length %d of %d", n, l, keptBins)
		}
	}
}

// TestOwnHistory checks that a class that has seen many returns no longer shrinks to what all others show.
func TestOwnHistory(t *testing.T) {
	all := New(nil)
	part := New(NewApart(all)) // a part of such a part is one itself
	for range 3000 {
		all.Left(1 << 20) // nearly all of the others never come back
	}
	for c := part; c != nil; c = c.Broader() {
		for range 1000 {
			c.Returned(1000)
		}
		for range 10 {
			c.Returned(8000)
		}
	}
	all.Learn()
	part.Broader().Learn()
	part.Learn()
	early, _ := part.Worth(500)
	late, _ := part.Worth(6144)
	if early-late > 4*Octave {
		t.Errorf("all of the class come back, but age 6,144 is worth %d and age 500 %d", late, early)
	}
}
