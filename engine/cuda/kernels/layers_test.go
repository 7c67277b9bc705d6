package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
	"github.com/coppice-llm/coppice/internal/f32"
)

// TestEmbed checks that embed widens the rows of tables of each type, which are padded, and reads
// the slot's last token where the given one is below 0.
func TestEmbed(t *testing.T) {
	const dim, vocab = 48, 20
	r := newRig(t, "layers")
	values := floats(seeded(1), vocab*kernels.Padded(dim), 1)
	halves := func(to func(float32) uint16) []uint16 {
		out := make([]uint16, len(values))
		for i, x := range values {
			out[i] = to(x)
		}
		return out
	}
	bf16, f16 := halves(f32.ToBF16), halves(f32.ToF16)
	tokens, slots, last := []int32{3, -1, 19, -1}, []int32{0, 2, 1, 0}, []int32{7, 8, 9}
	x, failed := r.room(4*len(tokens)*dim), put(r, make([]int32, 3))
	rows := put(r, []int32{0, 1, 1, 2})
	embed := func(table pointer, kind int32) {
		t.Helper()
		r.launch("layers", "embed", ptxvm.Dim{X: len(tokens)}, 256, 0, x, failed, table, put(r, tokens), put(r, slots), rows, put(r, last), int32(dim), kind, pointer(0))
	}
	for kind, table := range []struct {
		data pointer
		at   func(i int) float32
	}{
		{put(r, bf16), func(i int) float32 { return f32.FromBF16(bf16[i]) }},
		{put(r, f16), func(i int) float32 { return f32.FromF16(f16[i]) }},
		{put(r, values), func(i int) float32 { return values[i] }},
	} {
		embed(table.data, int32(kind))
		equal(t, "failed", get[int32](r, failed, 3), []int32{0, 0, 0})
		var want []float32
		for _, token := range []int{3, 9, 19, 7} {
			for i := range dim {
				want = append(want, table.at(token*kernels.Padded(dim)+i))
			}
		}
		equal(t, fmt.Sprint("embed from type ", kind), get[float32](r, x, len(want)), want)
	}

	last[2] = -1 // the slot's last sample has failed
	embed(put(r, bf16), 0)
	equal(t, "failed", get[int32](r, failed, 3), []int32{0, 1, 0})
}

// TestCheckFinite checks that a NaN or an infinity fails its row and no other.
func TestCheckFinite(t *testing.T) {
	const dim, tokens = 300, 5
	x := floats(seeded(8), dim*tokens, 1)
	x[dim+299], x[4*dim] = float32(math.NaN()), float32(math.Inf(-1))
	r := newRig(t, "layers", "pages")
	failed := put(r, make([]int32, 4))
	r.launch("layers", "check_finite", ptxvm.Dim{X: tokens}, 256, 0, failed, put(r, x), put(r, []int32{0, 1, 1, 2, 3}), int32(dim), pointer(0))
	equal(t, "failed", get[int32](r, failed, 4), []int32{0, 1, 0, 1})
	last := put(r, []int32{5, 6, 7, 8})
	r.launch("pages", "slot_fail", ptxvm.Dim{X: 1}, 256, 0, last, failed, put(r, []int32{3, 2, 1, 0}), int32(4), pointer(0))
	equal(t, "last", get[int32](r, last, 4), []int32{-1, 6, -1, 8})
}

// TestRMSNorm compares RMSNorm with the reference, for all rows and for rows selected by an index.
func TestRMSNorm(t *testing.T) {
	for _, dim := range []int{64, 272, 1024} {
		const rows, eps = 5, 1e-6
		x, w := floats(seeded(2), rows*dim, 3), floats(seeded(3), dim, 1)
		r := newRig(t, "layers")
		stride := kernels.Padded(dim)
		out := r.room(2 * rows * stride)
		in, weights := put(r, x), put(r, w)
		r.launch("layers", "rmsnorm", ptxvm.Dim{X: rows}, 256, 0, out, in, weights, pointer(0), pointer(0), int32(dim), float32(eps), pointer(0))
		got := get[uint16](r, out, rows*stride)
		want := make([]float64, rows*stride) // rows are padded with zeros
		for m := range rows {
			sum := 0.0
			for i := range dim {
				sum += float64(x[m*dim+i]) * float64(x[m*dim+i])
			}
			for i := range dim {
				want[m*stride+i] = float64(x[m*dim+i]) / math.Sqrt(sum/float64(dim)+eps) * float64(w[i])
			}
		}
		near(t, fmt.Sprint("rmsnorm ", dim), wide(got), want, 3e-3)
		picked := r.room(2 * 2 * stride)
		r.launch("layers", "rmsnorm", ptxvm.Dim{X: 2}, 256, 0, picked, in, weights, put(r, []int32{4, 1}), pointer(0), int32(dim), float32(eps), pointer(0))
		equal(t, "picked", get[uint16](r, picked, 2*stride), append(append([]uint16{}, got[4*stride:]...), got[stride:2*stride]...))
	}
}

// TestRopeWrite compares norm and rotation of queries and keys with f64, and checks the places of K
// and V in their pages.
func TestRopeWrite(t *testing.T) {
	const heads, kvHeads, tokens, perSlot = 3, 1, 7, 4
	for _, dim := range []int{16, 64, 80, 128} {
		for _, normed := range []bool{false, true} {
			for _, shift := range []int{0, 2} {
				ropeWrite(t, heads, kvHeads, tokens, dim, shift, normed)
			}
		}
	}
}

func ropeWrite(t *testing.T, heads, kvHeads, tokens, dim, shift int, normed bool) {
	t.Helper()
	const maxPos, perSlot, eps = 16, 16, 1e-6
	g := seeded(uint64(dim))
	all := heads + 2*kvHeads
	qkv, qn, kn := floats(g, tokens*all*dim, 1), floats(g, dim, 1), floats(g, dim, 1)
	cosine, sine := make([]float32, maxPos*dim/2), make([]float32, maxPos*dim/2)
	for p := range maxPos {
		for i := range dim / 2 {
			a := float64(p) / math.Pow(10000, float64(2*i)/float64(dim))
			cosine[p*dim/2+i], sine[p*dim/2+i] = float32(math.Cos(a)), float32(math.Sin(a))
		}
	}
	slots, positions := make([]int32, tokens), make([]int32, tokens)
	for i := range tokens {
		slots[i], positions[i] = int32(i%2), int32(i/2+5)
	}
	table := make([]int32, 2*perSlot)
	for i, p := range g.Perm(2 * perSlot) {
		table[i] = int32(p)
	}
	layer := 2 * kvHeads * dim << shift
	r := newRig(t, "layers")
	q, pages := r.room(2*tokens*heads*dim), put(r, make([]uint16, 2*perSlot*2*layer))
	norms := []any{pointer(0), pointer(0)}
	if normed {
		norms = []any{put(r, qn), put(r, kn)}
	}
	values := append([]any{q, pages, put(r, qkv)}, norms...)
	values = append(values, put(r, cosine), put(r, sine), put(r, slots), put(r, positions), put(r, table), uint64(2*layer), uint64(layer),
		int32(perSlot), int32(shift), int32(heads), int32(kvHeads), int32(dim), float32(eps), pointer(0))
	r.launch("layers", "rope_write", ptxvm.Dim{X: tokens, Y: all}, 32, 0, values...)
	gotQ, gotPool := get[uint16](r, q, tokens*heads*dim), get[uint16](r, pages, 2*perSlot*2*layer)
	for token := range tokens {
		for h := range all {
			in := wide(qkv[(token*all+h)*dim : (token*all+h+1)*dim])
			want := in
			if h < heads+kvHeads {
				norm := qn
				if h >= heads {
					norm = kn
				}
				if !normed {
					norm = nil
				}
				want = rotated(in, norm, float64(positions[token]), eps)
			}
			var got []uint16
			if h < heads {
				got = gotQ[(token*heads+h)*dim:][:dim]
			} else {
				pos := int(positions[token])
				page := int(table[int(slots[token])*perSlot+pos>>shift])
				got = gotPool[page*2*layer+layer+((h-heads)<<shift+pos&(1<<shift-1))*dim:][:dim]
			}
			near(t, fmt.Sprintf("head %d of token %d, %d wide, pages of %d, normed %v", h, token, dim, 1<<shift, normed), wide(got), want, 4e-3)
		}
	}
}

// rotated returns a head after norm (if given) and rotary embedding, in f64.
func rotated(in []float64, norm []float32, pos, eps float64) []float64 {
	x, half := append([]float64{}, in...), len(in)/2
	if norm != nil {
		sum := 0.0
		for _, v := range x {
			sum += v * v
		}
		for i := range x {
			x[i] = x[i] / math.Sqrt(sum/float64(len(x))+eps) * float64(norm[i])
		}
	}
	out := make([]float64, len(x))
	for i := range half {
		a := pos / math.Pow(10000, float64(2*i)/float64(len(x)))
		out[i] = x[i]*math.Cos(a) - x[i+half]*math.Sin(a)
		out[i+half] = x[i+half]*math.Cos(a) + x[i]*math.Sin(a)
	}
	return out
}
