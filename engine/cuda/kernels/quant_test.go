package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
	"github.com/coppice-llm/coppice/engine/model/gguf"
)

// quantised is a product whose weights are blocks of a type, and the same product with these weights
// rounded to bf16.
type quantised struct {
	form   *kernels.Form
	packed []byte
	*product
}

// blocksOf returns random blocks: all bits, except that the f16 fields are near 2^-7.
func blocksOf(g *rand.Rand, t gguf.Type, n int) []byte {
	b := make([]byte, n*t.BlockBytes())
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	scales := map[gguf.Type][]int{gguf.Q8_0: {0}, gguf.Q4_K: {0, 2}, gguf.Q6_K: {208}}[t]
	for i := range n {
		for _, at := range scales {
			at += i * t.BlockBytes()
			b[at+1] = b[at+1]&0x83 | 0x20
		}
	}
	return b
}

func newQuantised(seed uint64, f *kernels.Form, rows, columns, inner int) *quantised {
	p := newProduct(seed, rows, columns, inner)
	g, size := seeded(seed+100), f.Type.Bytes(inner)
	file := blocksOf(g, f.Type, columns*inner/f.Type.BlockValues())
	row := make([]float32, inner)
	for i := range columns {
		gguf.Dequantize(f.Type, row, file[i*size:][:size])
		for k, x := range row {
			p.w[i*inner+k] = narrow(x)
		}
	}
	q := &quantised{f, make([]byte, f.Bytes(columns, inner)), p}
	f.Pack(q.packed, columns, inner, func(i int) []byte { return file[i*size:][:size] })
	return q
}

// rowsOf returns the product of rows [lo, hi).
func (q *quantised) rowsOf(lo, hi int) *quantised {
	return &quantised{q.form, q.packed, q.product.rowsOf(lo, hi)}
}

// try runs the form's kernel that corresponds to g. Rows of c begin stride elements apart.
func (q *quantised) try(r *rig, g *kernels.GEMM, kind int32, c, w pointer, stride int) error {
	x, y := g.Grid(q.rows, q.columns)
	return r.try(q.form.Module(), q.form.Kernel(g.Name), ptxvm.Dim{X: x, Y: y}, 256, q.form.SharedBytes(g), c, put(r, q.a), w, put(r, q.bias),
		int32(q.rows), int32(q.columns), int32(q.inner), kind, pointer(0), int32(stride))
}

// result returns the product by the kernel that corresponds to g.
func (q *quantised) result(r *rig, g *kernels.GEMM, kind int32) ([]uint32, error) {
	c := put(r, make([]float32, q.rows*q.columns))
	if err := q.try(r, g, kind, c, put(r, q.packed), q.columns); err != nil {
		return nil, err
	}
	return get[uint32](r, c, q.rows*q.columns), nil
}

// bf16 returns the product with weights rounded to bf16, by gemm128.
func (q *quantised) bf16(t testing.TB, kind int32) []uint32 {
	r := newRig(t, "gemm")
	c := put(r, make([]float32, q.rows*q.columns))
	q.run(r, fits(q.rows)[0], kind, c)
	return get[uint32](r, c, q.rows*q.columns)
}

// TestQuantised checks that products with quantised weights have the bits of products with these weights
// rounded to bf16: in all kernels, for 8, 4, 2 and 1 slices, slices that begin within a block of 256, and
// partial tiles of columns.
func TestQuantised(t *testing.T) {
	for i := range kernels.Forms() {
		f := &kernels.Forms()[i]
		sizes := [][3]int{{5, 36, 256}, {33, 12, 768}}
		switch f.Type {
		case gguf.Q8_0:
			sizes = [][3]int{{5, 36, 256}, {33, 12, 96}, {16, 8, 64}, {17, 8, 128}}
		case gguf.Q4_K:
			sizes = append(sizes, [3]int{130, 136, 256})
		}
		for _, size := range sizes {
			q := newQuantised(1, f, size[0], size[1], size[2])
			want := q.bf16(t, toF32)
			for _, g := range fits(q.rows) {
				got, err := q.result(newRig(t, f.Module()), g, toF32)
				if err != nil {
					t.Fatal(err)
				}
				equal(t, fmt.Sprint(f.Kernel(g.Name), size), got, want)
			}
		}
	}
}

// TestQuantisedRowsAlone checks that a row's bits do not depend on other rows: of 256 rows, the ones that
// are computed as 1, 64 and 65 have the same bits.
func TestQuantisedRowsAlone(t *testing.T) {
	f := kernels.FormOf(gguf.Q4_K, 256)
	q := newQuantised(2, f, 256, 8, 256)
	all, err := q.result(newRig(t, f.Module()), kernels.GEMMFor(256), toF32)
	if err != nil {
		t.Fatal(err)
	}
	for _, span := range [][2]int{{255, 256}, {70, 134}, {101, 166}} {
		part := q.rowsOf(span[0], span[1])
		got, err := part.result(newRig(t, f.Module()), kernels.GEMMFor(part.rows), toF32)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, fmt.Sprint(span), got, all[span[0]*q.columns:span[1]*q.columns])
	}
}

// TestQuantisedOutputs checks all forms of a result, also of slices in blocks of their own, and two
// matrices that compute one result, each its columns.
func TestQuantisedOutputs(t *testing.T) {
	f := kernels.FormOf(gguf.Q4_K, 256)
	q := newQuantised(3, f, 70, 40, 256)
	want := map[int32][]uint32{}
	for _, kind := range []int32{toBF16, toF32, addF32, swiGLU} {
		want[kind] = q.bf16(t, kind)
		got, err := q.result(newRig(t, f.Module()), kernels.GEMMFor(q.rows), kind)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, fmt.Sprint("kind ", kind), got, want[kind])
	}
	one := q.rowsOf(3, 5)
	got, err := one.result(newRig(t, f.Module()), kernels.GEMMFor(2), swiGLU)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "two rows", got[:20], want[swiGLU][3*10:5*10])

	r := newRig(t, "gemm", f.Module())
	cut, stride := kernels.Slices(q.rows, q.columns, q.inner, 132), q.columns
	parts := r.room(4 * cut * q.rows * stride)
	half := func(at, n int) {
		w := put(r, q.packed[f.Bytes(at, q.inner):])
		r.launch(f.Module(), f.Kernel("gemm_slices"), ptxvm.Dim{X: 1, Y: cut}, 256, 0, parts+pointer(4*at), put(r, q.a), w,
			int32(q.rows), int32(n), int32(q.inner), pointer(0), int32(stride))
	}
	half(0, 24)
	half(24, 16)
	sum := put(r, make([]float32, q.rows*stride))
	bias := put(r, q.bias)
	r.launch("gemm", "gemm_sum", ptxvm.Dim{X: 1, Y: q.rows}, 256, 0, sum, parts, bias, int32(q.rows), int32(stride), int32(q.inner), toF32, pointer(0))
	sliced := get[uint32](r, sum, q.rows*stride)
	w, c := put(r, q.packed[f.Bytes(24, q.inner):]), put(r, make([]float32, q.rows*stride))
	part := *q
	part.product = &product{rows: q.rows, columns: 16, inner: q.inner, a: q.a, bias: q.bias[24:]}
	if err := part.try(r, kernels.GEMMFor(q.rows), toF32, c+4*24, w, stride); err != nil {
		t.Fatal(err)
	}
	sums := get[uint32](r, c, q.rows*stride)
	for m := range q.rows {
		equal(t, "slices of two matrices", sliced[m*stride:][:q.columns], want[toF32][m*q.columns:][:q.columns])
		equal(t, "columns of one matrix of two", sums[m*stride+24:][:16], want[toF32][m*q.columns+24:][:16])
		equal(t, "columns of others", sums[m*stride:][:24], make([]uint32, 24))
	}
}

// TestQuantisedEmbed checks that rows of a table have the bits of rows rounded to bf16.
func TestQuantisedEmbed(t *testing.T) {
	for i := range kernels.Forms() {
		f := &kernels.Forms()[i]
		q := newQuantised(4, f, 1, 19, 512)
		r := newRig(t, f.Module())
		tokens := []int32{18, 0, 7, 8, -1}
		x, failed := r.room(4*512*len(tokens)), put(r, make([]int32, 5))
		r.launch(f.Module(), f.Kernel("embed"), ptxvm.Dim{X: len(tokens)}, 256, 0, x, failed, put(r, q.packed), put(r, tokens), put(r, []int32{0, 0, 0, 0, 1}),
			put(r, []int32{0, 1, 2, 3, 4}), put(r, []int32{0, 5}), int32(512), int32(0), pointer(0))
		got := get[float32](r, x, 512*len(tokens))
		for i, token := range []int{18, 0, 7, 8, 5} {
			want := make([]float32, 512)
			for k, w := range q.w[512*token:][:512] {
				want[k] = float32(widen(w))
			}
			equal(t, fmt.Sprint(f.Type, " token ", token), got[512*i:][:512], want)
		}
	}
}

// TestQuantisedWiden checks that a matrix in bf16 has its weights rounded, and counts the instructions.
func TestQuantisedWiden(t *testing.T) {
	for i := range kernels.Forms() {
		f := &kernels.Forms()[i]
		q := newQuantised(10, f, 1, 11, 2304)
		r := newRig(t, f.Module())
		out := r.room(2 * len(q.w))
		r.launch(f.Module(), f.Kernel("widen"), ptxvm.Dim{X: 11, Y: 2}, 256, 0, out, put(r, q.packed), int32(2304))
		equal(t, f.Type.String(), get[uint16](r, out, len(q.w)), q.w)
		if n := r.m.Stats(f.Kernel("widen")).Instructions / int64(len(q.w)/8); n > kernels.WidenInstructions {
			t.Errorf("%v: %d instructions for 8 weights, want at most %d", f.Type, n, kernels.WidenInstructions)
		}
	}
}

// TestQuantisedReadsOnce checks that products of up to 64 rows load each byte of weights once.
func TestQuantisedReadsOnce(t *testing.T) {
	for i := range kernels.Forms() {
		f := &kernels.Forms()[i]
		q := newQuantised(5, f, 1, 40, 2048) // slices of whole blocks
		r := newRig(t, f.Module())
		w := put(r, q.packed)
		if err := q.try(r, kernels.GEMMFor(1), toF32, r.room(4*q.columns), w, q.columns); err != nil {
			t.Fatal(err)
		}
		if got := r.m.ReadBytes(uint64(w)); got != int64(len(q.packed)) {
			t.Errorf("%v: %d bytes of weights are loaded, want %d", f.Type, got, len(q.packed))
		}
	}
}

// TestQuantisedMutants checks that the interpreter reports a product without any one of its barriers, also
// those of a warp, and of its commits. The product has one slice, and more steps than the ring.
func TestQuantisedMutants(t *testing.T) {
	f := kernels.FormOf(gguf.Q8_0, 160)
	for _, rows := range []int{16, 128} {
		q, g := newQuantised(6, f, rows, 32, 160), kernels.GEMMFor(rows)
		run := func(r *rig) error {
			_, err := q.result(r, g, toF32)
			return err
		}
		if err := run(newRig(t, f.Module())); err != nil {
			t.Fatal(err)
		}
		caught(t, f.Module(), f.Kernel(g.Name), "bar.sync", "// bar.sync", 2, run, ptxvm.SharedRace, ptxvm.PendingCopy, ptxvm.Uninitialised)
		caught(t, f.Module(), f.Kernel(g.Name), "cp.async.commit_group", "// cp", 1, run, ptxvm.PendingCopy)
		if rows == 16 {
			caught(t, f.Module(), f.Kernel(g.Name), "bar.warp.sync", "// bar.warp.sync", 2, run, ptxvm.SharedRace, ptxvm.PendingCopy)
		}
	}
}

// TestQuantisedPlants checks that the comparison with bf16 finds weights that are widened wrongly.
func TestQuantisedPlants(t *testing.T) {
	f := kernels.FormOf(gguf.Q4_K, 512)
	q, g := newQuantised(7, f, 5, 16, 512), kernels.GEMMFor(5)
	want := q.bf16(t, toF32)
	replace := func(old, to string) func(line string) []string {
		return func(line string) []string {
			if !strings.Contains(line, old) {
				return nil
			}
			return []string{strings.Replace(line, old, to, 1)}
		}
	}
	for what, change := range map[string]func(line string) []string{
		"nothing":                         replace("prmt.b32", "prmt.b32"),
		"the minimum's factor as scale's": replace(", 30288;", ", 30289;"),
		"the last nibble of four twice":   replace(", 61440;", ", 3840;"),
		"no minimum": func(line string) []string {
			f := strings.Fields(line)
			if len(f) < 5 || f[0] != "fma.rn.f32" {
				return nil
			}
			return []string{"mul.rn.f32 " + strings.TrimSuffix(strings.Join(f[1:4], " "), ",") + ";"}
		},
		"16 bits of words of 32": replace("ld.shared.u32", "ld.shared.u16"),
	} {
		r := newRig(t, f.Module())
		r.changed = planted(t, f.Module(), f.Kernel(g.Name), change)
		got, err := q.result(r, g, toF32)
		if err != nil {
			t.Fatal(err)
		}
		if same := slices.Equal(got, want); same != (what == "nothing") {
			t.Errorf("%s planted: equal bits: %v", what, same)
		}
	}
}

// TestQuantisedFar checks a row whose offset has more than 32 bits. An offset in 32 bits must be found.
func TestQuantisedFar(t *testing.T) {
	const columns, token = 32768, 1<<18 - 1
	f := kernels.FormOf(gguf.Q8_0, columns)
	q := newQuantised(8, f, 1, 8, columns)
	for _, plant := range []bool{false, true} {
		r := newRig(t, f.Module())
		r.m = ptxvm.New(ptxvm.Config{MemoryBytes: 160 << 30})
		r.s = r.m.NewStream()
		table := r.room(f.Bytes(token+1, columns))
		r.write(table+pointer(f.Bytes(token+1, columns)-len(q.packed)), q.packed)
		if plant {
			r.changed = planted(t, f.Module(), f.Kernel("embed"), func(line string) []string {
				f := strings.Fields(line)
				if len(f) < 4 || f[0] != "mul.wide.s32" && f[0] != "mul.lo.s64" {
					return nil
				}
				to := strings.TrimSuffix(f[1], ",")
				return []string{line, fmt.Sprintf("and.b64 %s, %s, 4294967295;", to, to)}
			})
		}
		x, zero := r.room(4*columns), put(r, []int32{0})
		err := r.try(f.Module(), f.Kernel("embed"), ptxvm.Dim{X: 1}, 256, 0, x, zero, table, put(r, []int32{token}), zero, zero, zero, int32(columns), int32(0), pointer(0))
		var got []float32
		if err == nil {
			got = get[float32](r, x, columns)
		}
		same := err == nil
		for k := range got {
			same = same && narrow(got[k]) == q.w[7*columns+k]
		}
		if same == plant {
			t.Errorf("an offset in 32 bits %v: the right row %v: %v", plant, same, err)
		}
	}
}

// TestQuantisedInstructions checks the instructions of a tile's step that the cost model has.
func TestQuantisedInstructions(t *testing.T) {
	for i := range kernels.Forms() {
		f := &kernels.Forms()[i]
		for _, g := range kernels.GEMMs() {
			count := func(inner int) float64 {
				q := newQuantised(9, f, max(g.Rows, 1), 8, inner)
				r := newRig(t, f.Module())
				if _, err := q.result(r, &g, toF32); err != nil {
					t.Fatal(err)
				}
				return float64(r.m.Stats(f.Kernel(g.Name)).Instructions)
			}
			long, short := 512, 256
			if f.Type.BlockValues() == 32 {
				long, short = 224, 160 // one slice
			}
			one, two := kernels.Instructions(f, &g, 256), kernels.Instructions(f, &g, 512)
			near(t, f.Kernel(g.Name), []float64{count(long) - count(short)}, []float64{float64(two-one) / 256 * float64(long-short)}, 0.02)
		}
	}
}
