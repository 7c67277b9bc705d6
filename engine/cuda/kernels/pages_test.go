package kernels_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
	"github.com/coppice-llm/coppice/internal/splitmix"
)

// TestPageCopy copies the first slots of a page in all strips, and nothing else.
func TestPageCopy(t *testing.T) {
	const strips, slots, pieces, pages = 6, 8, 2, 4 // pieces of 16 bytes per slot
	r := newRig(t, "pages")
	data := floats(seeded(1), pages*strips*slots*pieces*4, 1)
	p := put(r, data)
	copies := []int32{0, 3, 5, 2, 1, 8}
	page := strips * slots * pieces
	r.launch("pages", "page_copy", ptxvm.Dim{X: 2, Y: strips}, 128, 0, p, put(r, copies), uint64(page), int32(slots*pieces), int32(pieces))
	want := slices.Clone(data)
	for i := 0; i < len(copies); i += 3 {
		for s := range strips {
			from, to := (int(copies[i])*page+s*slots*pieces)*4, (int(copies[i+1])*page+s*slots*pieces)*4
			n := int(copies[i+2]) * pieces * 4
			copy(want[to:to+n], data[from:from+n])
		}
	}
	equal(t, "page_copy", get[float32](r, p, len(data)), want)
}

// TestMakeWeights checks that values have either sign and magnitudes of 2^-6 to 2^-5, and depend on
// the seed.
func TestMakeWeights(t *testing.T) {
	mix := func(x uint64) uint64 { return splitmix.Mix(x + splitmix.Golden) }
	const n = 300
	r := newRig(t, "weights")
	for _, seed := range []uint64{9, 10} {
		want, sum := make([]uint16, 4*n), 0.0
		for i := range want {
			want[i] = uint16(mix(seed^mix(uint64(i/4)))>>(16*(i%4)))&0x807f | 0x3c80
			if x := math.Abs(widen(want[i])); x < 1.0/64 || x >= 1.0/32 {
				t.Fatalf("value %d is %v", i, x)
			}
			sum += widen(want[i])
		}
		if math.Abs(sum) > 2.5 { // four standard deviations
			t.Errorf("the sum of %d values is %v", 4*n, sum)
		}
		out := r.room(8 * n)
		r.launch("weights", "make_weights", ptxvm.Dim{X: 2}, 256, 0, out, uint64(n), seed)
		equal(t, "make_weights", get[uint16](r, out, 4*n), want)
	}
}

// TestGatherScatter copies pages to a buffer and back to other pages.
func TestGatherScatter(t *testing.T) {
	const page, pages = 37, 6 // pieces of 16 bytes
	r := newRig(t, "pages")
	data := floats(seeded(2), pages*page*4, 1)
	p, buffer := put(r, data), r.room(3*page*16)
	grid := ptxvm.Dim{X: 3, Y: 4}
	r.launch("pages", "page_gather", grid, 256, 0, buffer, p, put(r, []int32{5, 0, 2}), uint64(page))
	r.launch("pages", "page_scatter", grid, 256, 0, p, buffer, put(r, []int32{1, 3, 4}), uint64(page))
	want := slices.Clone(data)
	for i, from := range []int{5, 0, 2} {
		copy(want[[]int{1, 3, 4}[i]*page*4:], data[from*page*4:(from+1)*page*4])
	}
	equal(t, "scatter", get[float32](r, p, len(data)), want)
	if err := r.try("pages", "page_scatter", grid, 256, 0, p, buffer, put(r, []int32{1, 6, 4}), uint64(page)); !outOfBounds(err) {
		t.Errorf("a page beyond the pool: %v", err)
	}
}

func outOfBounds(err error) bool {
	var f *ptxvm.Fault
	return errors.As(err, &f) && f.Kind == ptxvm.OutOfBounds
}

// TestSlots checks table_write, slot_clear and slot_count.
func TestSlots(t *testing.T) {
	const slots, perSlot, vocab = 3, 5, 300
	r := newRig(t, "pages")
	table := put(r, make([]int32, slots*perSlot))
	entries := []int32{0, 4, 11, 2, 0, 12, 1, 1, 13}
	r.launch("pages", "table_write", ptxvm.Dim{X: 1}, 256, 0, table, put(r, entries), int32(3), int32(perSlot), pointer(0))
	want := make([]int32, slots*perSlot)
	want[4], want[10], want[6] = 11, 12, 13
	equal(t, "table", get[int32](r, table, len(want)), want)

	last, counts := put(r, []int32{1, 2, 3}), r.room(4*slots*vocab)
	r.launch("pages", "slot_clear", ptxvm.Dim{X: slots, Y: 2}, 256, 0, last, counts, put(r, []int32{0, 1, 2}), int32(vocab))
	r.launch("pages", "slot_count", ptxvm.Dim{X: 1}, 256, 0, counts, put(r, []int32{1, 7, 0, 1, 7, 0, 1, 7, 1, 2, 299, 1}), int32(4), int32(vocab))
	seen := make([]uint32, slots*vocab)
	seen[vocab+7], seen[2*vocab+299] = 1<<31|2, 1<<31
	equal(t, "counts", get[uint32](r, counts, len(seen)), seen)
	equal(t, "last", get[int32](r, last, slots), []int32{-1, -1, -1})
}
