package wide

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// checkArena walks all chunks and checks that arrays and free blocks cover each without gap or
// overlap, that no two free blocks are adjacent, and that lists and bits agree.
func checkArena(a *Arena[uint32], arrays []Vec[uint32]) error {
	listed := map[[2]uint32]uint32{}
	for class, head := range a.lists {
		if (head != 0) != (a.filled[class/64]&(1<<(class%64)) != 0) {
			return fmt.Errorf("class %d begins with %d, filled %x", class, head, a.filled)
		}
		for before, at := uint32(0), head; at != 0; {
			w := a.block(at)
			if classOf(w[0]) != uint32(class) || w[1] != before {
				return fmt.Errorf("block %d of %d granules in class %d, after %d, not %d", at, w[0], class, w[1], before)
			}
			listed[[2]uint32{(at - 1) >> chunkBits, (at - 1) & (1<<chunkBits - 1)}] = w[0]
			before, at = at, w[2]
		}
	}
	held := make([]map[uint32]uint32, len(a.chunks)) // by chunk: lengths of arrays by first granule
	for i := range held {
		held[i] = map[uint32]uint32{}
	}
	used := 0
	for i := range arrays {
		c, at := a.find(&arrays[i])
		if c == nil {
			continue
		}
		count := uint32(arrays[i].cap) / granule
		if _, twice := held[c.index][at]; twice || int(count)*granule < arrays[i].Len() {
			return fmt.Errorf("array of %d words at %d of chunk %d has %d granules, or is there twice", arrays[i].Len(), at, c.index, count)
		}
		held[c.index][at] = count
		used += int(count)
	}
	if used != a.used {
		return fmt.Errorf("%d granules in use, counted %d", a.used, used)
	}
	for i, c := range a.chunks {
		free := false
		for at := uint32(0); at < uint32(len(c.words)/granule); {
			bit := c.begins[at/64]&(1<<(at%64)) != 0
			count, isFree := listed[[2]uint32{uint32(i), at}]
			if !isFree {
				count = held[i][at]
			}
			last := at + count - 1
			switch {
			case count == 0:
				return fmt.Errorf("granule %d of chunk %d has no owner", at, i)
			case bit != isFree || isFree && free:
				return fmt.Errorf("block at %d of chunk %d, free %v, marked %v, after a free one: %v", at, i, isFree, bit, free)
			case (c.ends[last/64]&(1<<(last%64)) != 0) != isFree || isFree && c.words[(last+1)*granule-1] != count:
				return fmt.Errorf("block at %d of chunk %d does not end as one of %d granules does, free: %v", at, i, count, isFree)
			}
			at, free = at+count, isFree
		}
	}
	return nil
}

// TestArenaAgainstSlices allocates, truncates and frees arrays of all classes, and checks that none
// overwrites another and that all memory is free at the end.
func TestArenaAgainstSlices(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 7))
		var a Arena[uint32]
		var arrays []Vec[uint32]
		var want [][]uint32
		for step := range 1500 {
			switch op := rng.IntN(8); {
			case op < 4 || len(arrays) == 0:
				s := make([]uint32, rng.IntN(1<<(4+rng.IntN(13))))
				for i := range s {
					s[i] = rng.Uint32()
				}
				arrays, want = append(arrays, a.Of(s)), append(want, s)
			case op < 6:
				i := rng.IntN(len(arrays))
				n := rng.IntN(len(want[i]) + 1)
				a.Truncate(&arrays[i], n)
				want[i] = want[i][:n]
			default:
				i := rng.IntN(len(arrays))
				a.Free(&arrays[i])
				arrays, want = slices.Delete(arrays, i, i+1), slices.Delete(want, i, i+1)
			}
			if step%50 == 0 {
				if err := checkArena(&a, arrays); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, step, err)
				}
			}
			i := rng.IntN(max(len(arrays), 1))
			if i < len(arrays) && !slices.Equal(arrays[i].Slice(), want[i]) {
				t.Fatalf("seed %d, step %d: array %d changed", seed, step, i)
			}
		}
		for i := range arrays {
			if !slices.Equal(arrays[i].Slice(), want[i]) {
				t.Fatalf("seed %d: array %d changed", seed, i)
			}
			a.Free(&arrays[i])
		}
		if err := checkArena(&a, nil); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, c := range a.chunks {
			if c.words[0] != uint32(len(c.words)/granule) {
				t.Fatalf("seed %d: a chunk of %d words ends with a free block of %d granules", seed, len(c.words), c.words[0])
			}
		}
	}
}

// TestArenaLimits tests one word below, at and above the sizes that an arena holds.
func TestArenaLimits(t *testing.T) {
	var a Arena[uint32]
	for n, want := range map[int]bool{0: false, ArenaWords - 1: false, ArenaWords: true, largestArray: true, largestArray + 1: false} {
		v := a.Of(make([]uint32, n))
		if v.Len() != n || a.Holds(&v) != want {
			t.Errorf("%d words: %d, in the arena: %v", n, v.Len(), a.Holds(&v))
		}
		if a.Free(&v); v.Len() != 0 || v.CapBytes() != 0 {
			t.Errorf("%d words are left of %d", v.Len(), n)
		}
	}
	if _, used := a.Bytes(); used != 0 {
		t.Errorf("%d bytes in use", used)
	}
}

// TestArenaReuses checks that churn of many sizes needs little memory beyond the arrays, and no
// allocation.
func TestArenaReuses(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var a Arena[uint32]
	arrays := make([]Vec[uint32], 400)
	s := make([]uint32, 8192)
	turn := func() {
		i := rng.IntN(len(arrays))
		a.Free(&arrays[i])
		arrays[i] = a.Of(s[:ArenaWords+rng.IntN(len(s)-ArenaWords)])
	}
	for range 20000 {
		turn()
	}
	if n := testing.AllocsPerRun(20000, turn); n != 0 {
		t.Errorf("%v allocations a turn", n)
	}
	if held, used := a.Bytes(); float64(held) > 1.6*float64(used) {
		t.Errorf("%d bytes held for %d in use", held, used)
	}
}

// BenchmarkArenaFresh copies runs into memory that was never written to.
func BenchmarkArenaFresh(b *testing.B) {
	s := make([]uint32, 3500)
	for _, by := range []string{"heap", "arena"} {
		b.Run("by="+by, func(b *testing.B) {
			var a Arena[uint32]
			keep := make([]Vec[uint32], 0, 10000)
			for b.Loop() {
				if len(keep) == cap(keep) {
					a, keep = Arena[uint32]{}, keep[:0]
				}
				if by == "heap" {
					keep = append(keep, VecOf(s))
				} else {
					keep = append(keep, a.Of(s))
				}
			}
		})
	}
}
