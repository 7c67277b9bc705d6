package runeset

import (
	"math/rand/v2"
	"testing"
	"unicode"
)

// TestSets compares sets of random ranges, and their complements, with a list of the runes.
func TestSets(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var in [64]bool
		var ranges []Range
		for range rng.IntN(8) {
			lo := rune(rng.IntN(60))
			ranges = append(ranges, Range{lo, lo + rune(rng.IntN(5))})
			for r := lo; r <= ranges[len(ranges)-1].Hi; r++ {
				in[r] = true
			}
		}
		s := New(ranges)
		out := s.Complement()
		for i := 1; i < len(s); i++ {
			if s[i].Lo <= s[i-1].Hi+1 {
				t.Fatalf("%v is not normal", s)
			}
		}
		for r, is := range in {
			if s.Has(rune(r)) != is || out.Has(rune(r)) == is {
				t.Fatalf("%v of %v, its complement %v: want %v for %d", s, ranges, out, is, r)
			}
		}
		if !out.Has(unicode.MaxRune) {
			t.Fatalf("%v lacks the highest rune", out)
		}
	}
	if !One('x').IsOne() || (Set{{'x', 'y'}}).IsOne() || (Set{}).IsOne() {
		t.Error("IsOne")
	}
}

// TestTable compares a table with unicode.Is.
func TestTable(t *testing.T) {
	for name, table := range map[string]*unicode.RangeTable{"Lu": unicode.Lu, "Nd": unicode.Nd, "Greek": unicode.Greek, "White_Space": unicode.White_Space} {
		s, n := Table(table), rune(0)
		for _, x := range s {
			n += x.Hi - x.Lo + 1
			for r := x.Lo; r <= x.Hi; r++ {
				if !unicode.Is(table, r) {
					t.Fatalf("%s: %U is not in the table", name, r)
				}
			}
		}
		want := rune(0)
		for r := rune(0); r <= unicode.MaxRune; r++ {
			if unicode.Is(table, r) {
				want++
			}
		}
		if n != want {
			t.Errorf("%s: %d runes, want %d", name, n, want)
		}
	}
}
