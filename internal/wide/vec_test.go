package wide

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// checkVec compares v with a plain slice.
func checkVec(t *testing.T, v *Vec[uint32], want []uint32) {
	t.Helper()
	s := v.Slice()
	if !slices.Equal(s, want) || v.Len() != len(want) {
		t.Fatalf("%d words %v, want %d: %v", v.Len(), s, len(want), want)
	}
	if cap(s) != len(s) {
		t.Fatalf("a slice of %d words with room for %d", len(s), cap(s))
	}
	if v.len < 0 || v.len > v.cap || (v.data == nil) != (v.cap == 0) || v.CapBytes() != 4*int(v.cap) {
		t.Fatalf("at %p %d words, room for %d, %d bytes", v.data, v.len, v.cap, v.CapBytes())
	}
}

func count(n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(i) + 1
	}
	return out
}

func TestVecIsAQuarterOfACacheLine(t *testing.T) {
	if got, want := unsafe.Sizeof(Vec[uint32]{}), 8+unsafe.Sizeof(uintptr(0)); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}

func TestEmptyVecIsTheZeroValue(t *testing.T) {
	truncated := VecOf(count(5))
	truncated.Truncate(0)
	five := VecOf(count(5))
	for name, v := range map[string]Vec[uint32]{
		"of nil":        VecOf[uint32](nil),
		"of empty":      VecOf([]uint32{}),
		"truncated":     truncated,
		"clone of none": five.CloneRange(5, 5),
	} {
		if v != (Vec[uint32]{}) || v.Slice() != nil || v.CapBytes() != 0 {
			t.Errorf("%s: %+v", name, v)
		}
		v.Truncate(0)
		checkVec(t, &v, nil)
	}
}

func TestVecOwnsItsArray(t *testing.T) {
	for _, n := range []int{1, 2, 3, 16, 100, 5000} {
		from := count(n)
		v := VecOf(from)
		clone := v.CloneRange(0, n)
		from[n-1] = 0
		checkVec(t, &v, count(n))
		v.Slice()[0] = 7 // the slice is not a copy
		if v.Slice()[0] != 7 {
			t.Fatalf("%d words: a slice that is a copy", n)
		}
		checkVec(t, &clone, count(n))
	}
}

// TestVecKeepsItsCapacity checks that appending to v's slice does not change v.
func TestVecKeepsItsCapacity(t *testing.T) {
	v := VecOf(count(100))
	v.Truncate(99)
	if v.cap == v.len {
		t.Fatal("no spare room to test with")
	}
	_ = append(v.Slice(), 9)
	if spare := unsafe.Slice(v.data, v.cap)[v.len]; spare == 9 {
		t.Error("an append to the slice wrote into the spare room")
	}
}

func TestVecTruncate(t *testing.T) {
	for _, n := range []int{1, 2, 7, 64, 1000} {
		for keep := range n + 1 {
			v := VecOf(count(n))
			at, room := v.data, int(v.cap)
			v.Truncate(keep)
			checkVec(t, &v, count(keep))
			if moved := v.data != at; moved != (2*keep < room) {
				t.Fatalf("%d of %d words kept, room for %d: moved %v", keep, n, room, moved)
			}
			if keep > 0 && int(v.cap) > max(2*keep, room/2) && v.data != at {
				t.Fatalf("%d of %d words kept: room for %d", keep, n, v.cap)
			}
		}
	}
}

func mustPanic(t *testing.T, with string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		text, _ := recover().(string)
		if !strings.Contains(text, with) {
			t.Errorf("panic %q, want one with %q", text, with)
		}
	}()
	f()
}

func TestVecLimits(t *testing.T) {
	v := VecOf(count(5))
	mustPanic(t, "truncate 5 words to 6", func() { v.Truncate(6) })
	mustPanic(t, "truncate 5 words to -1", func() { v.Truncate(-1) })
	v.Truncate(5)
	checkVec(t, &v, count(5))

	fit(math.MaxInt32 - 1)
	fit(math.MaxInt32)
	if math.MaxInt == math.MaxInt32 {
		return // a longer slice cannot be
	}
	over := math.MaxInt32
	over++
	mustPanic(t, "2147483648 words", func() { fit(over) })
	// A header alone: nothing of its words is read before the panic.
	words := struct {
		data     *uint32
		len, cap int
	}{new(uint32), over, over}
	mustPanic(t, "2147483648 words", func() { VecOf(*(*[]uint32)(unsafe.Pointer(&words))) })
}

func FuzzVec(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, 200)
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps int) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var v Vec[uint32]
		var plain []uint32
		for range min(max(steps, 0), 1000) {
			switch n := len(plain); rng.IntN(4) {
			case 0, 1:
				more := count(rng.IntN(1 + rng.IntN(300)))
				v = VecOf(append(v.Slice(), more...))
				plain = append(plain, more...)
			case 2:
				n = rng.IntN(n + 1)
				v.Truncate(n)
				plain = plain[:n:n]
			case 3:
				lo := rng.IntN(n + 1)
				hi := lo + rng.IntN(n-lo+1)
				clone := v.CloneRange(lo, hi)
				checkVec(t, &clone, plain[lo:hi])
				if rng.IntN(3) == 0 {
					v, plain = clone, slices.Clone(plain[lo:hi])
				}
			}
			checkVec(t, &v, plain)
		}
	})
}
