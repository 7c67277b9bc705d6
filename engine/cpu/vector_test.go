package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/internal/f32"
	"github.com/coppice-llm/coppice/kv"
)

const nastyKinds = 7

// eachVector runs a test on every path of this machine that has vector kernels.
func eachVector(t *testing.T, test func(t *testing.T, k *kernels)) {
	t.Helper()
	onVectors(t, ISAs()[1:], test)
}

// eachOwnVector is eachVector for a test without quantised weights: it leaves out paths that are then the path before.
func eachOwnVector(t *testing.T, test func(t *testing.T, k *kernels)) {
	t.Helper()
	onVectors(t, ownISAs()[1:], test)
}

func onVectors(t *testing.T, isas []ISA, test func(t *testing.T, k *kernels)) {
	t.Helper()
	if len(isas) == 0 {
		t.Skip("this machine has the portable path only")
	}
	for _, isa := range isas {
		t.Run(isa.String(), func(t *testing.T) { test(t, kernelsOf(isa)) })
	}
}

func nastyTensor(r *rand.Rand, rows, cols, kind int, dtype kv.DType) *model.Tensor {
	v := make([]float32, rows*cols)
	nasty(r, v, kind)
	t := &model.Tensor{Name: "w", DType: dtype, Shape: []int{rows, cols}}
	for _, x := range v {
		switch dtype {
		case kv.BF16:
			t.Data = binary.LittleEndian.AppendUint16(t.Data, uint16(math.Float32bits(x)>>16))
		case kv.F16:
			t.Data = binary.LittleEndian.AppendUint16(t.Data, f32.ToF16(x))
		default:
			t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(x))
		}
	}
	return t
}

// productDiffers packs two stacked matrices, multiplies rows by them, and reports the first
// element that differs from the chain of FMA32.
func productDiffers(r *rand.Rand, ops *kernels, trial int) error {
	rows, k := 1+r.IntN(14), 1+r.IntN(150)
	if trial%3 == 0 { // the sums of others have one block
		k = 1 + r.IntN(2*blockK+50)
	}
	dtypes := [][2]kv.DType{{kv.BF16, kv.BF16}, {kv.F32, kv.F32}, {kv.BF16, kv.F32}, {kv.F16, kv.F16}}[trial%4]
	tensors := []*model.Tensor{
		nastyTensor(r, 1+r.IntN(70), k, trial/3%nastyKinds, dtypes[0]),
		nastyTensor(r, 1+r.IntN(70), k, trial/3%nastyKinds, dtypes[1]),
	}
	p := packer{kernels: ops}
	m := p.pack(k, tensors...)
	if p.err != nil {
		return p.err
	}
	defer m.store.Close()
	a := newActs(ops, rows, k, false, false)
	nasty(r, a.rows, trial/3/nastyKinds%nastyKinds)
	out := make([]float32, rows*m.stride())
	nasty(r, out, 5) // must be overwritten
	for panel := range m.panelCount() {
		ops.productPanel(nil, out, a, m, panel, 0, rows)
	}
	w := append(widen(tensors[0]), widen(tensors[1])...)
	for i := range rows {
		for c := range m.stride() {
			want := float32(0)
			for j := 0; c < m.n && j < k; j++ {
				want = f32.FMA32(a.rows[i*k+j], w[c*k+j], want)
			}
			if got := out[i*m.stride()+c]; c < m.n && !sameBits(got, want) {
				return fmt.Errorf("trial %d: row %d column %d of %dx%dx%d is %x, want %x", trial, i, c, rows, k, m.n, got, want)
			}
		}
	}
	return nil
}

func TestVectorProduct(t *testing.T) {
	eachOwnVector(t, func(t *testing.T, ops *kernels) {
		r := rand.New(rand.NewPCG(1, 2))
		for trial := range 3 * nastyKinds * nastyKinds {
			if err := productDiffers(r, ops, trial); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// attendDiffers compares the attention of a path with the portable path's over random pages.
// Slots past the end are NaN, so that reading one shows.
func attendDiffers(r *rand.Rand, ops *kernels, trial int) error {
	dim, group, tokens, n := 16*(1+r.IntN(9)), 1+r.IntN(5), 1<<r.IntN(7), 1+r.IntN(90)
	kind := kvTypes[trial%len(kvTypes)]
	if kind == kv.Q8_0 {
		dim = q8Block * (1 + r.IntN(5))
	}
	c := &model.Config{HeadDim: dim, KVHeads: 1, Layers: 1}
	used := kv.CeilPages(n, tokens)
	all := used + 2
	a, err := newArena(c, Config{PageTokens: tokens, Pages: all, KVType: kind})
	if err != nil {
		return err
	}
	defer a.close()
	for page := range all {
		b := a.bytes(kv.PageID(page))
		for i := range b {
			b[i] = 0xff // NaN in all types
		}
	}
	pages := make([]kv.PageID, used)
	for i, p := range r.Perm(all)[:used] {
		pages[i] = kv.PageID(p)
	}
	for p := range n {
		row := make([]float32, dim)
		nasty(r, row, trial/len(kvTypes)%nastyKinds)
		a.put(portable, pages[p/tokens], halfK(0), 0, p%tokens, row)
		nasty(r, row, trial/len(kvTypes)/nastyKinds%nastyKinds)
		a.put(portable, pages[p/tokens], halfV(0), 0, p%tokens, row)
	}
	count := 1 + r.IntN(min(n, runTokens))
	q := make([]float32, count*group*dim)
	nasty(r, q, trial%3%2)
	got, want := make([]float32, len(q)), make([]float32, len(q))
	nasty(r, got, 5)
	w := &scratch{heads: make([]float32, len(q)), ones: slices.Repeat([]float32{1}, dim), scores: make([]float32, count*group*paddedScores(n)), inverse: make([]float32, count*group), rows: make([]float32, tokens*dim), columns: make([]float64, dim)}
	nasty(r, w.scores, 5)
	scale := float32(1 / math.Sqrt(float64(dim)))
	first := n - count + 1
	ops.attend(a, w, got, group*dim, q, pages, 0, 0, group, first, count, scale)
	for t := range count {
		width := group * dim
		a.attend(w, want[t*width:(t+1)*width], q[t*width:(t+1)*width], pages, 0, 0, group, first+t, scale)
	}
	for i := range want {
		if !sameBits(got[i], want[i]) {
			return fmt.Errorf("trial %d: %d tokens of %d heads of %d, %d positions in pages of %d, %v: element %d is %x, want %x", trial, count, group, dim, n, tokens, kind, i, got[i], want[i])
		}
	}
	return nil
}

func TestVectorAttend(t *testing.T) {
	eachOwnVector(t, func(t *testing.T, ops *kernels) {
		r := rand.New(rand.NewPCG(3, 4))
		for trial := range 2 * len(kvTypes) * nastyKinds * nastyKinds {
			if err := attendDiffers(r, ops, trial); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// lastFirst returns ops with a planted fault: tiles with at most as many rows as most says start
// the chain with the product of the last k.
func lastFirst(ops *kernels, most int) *kernels {
	broken := *ops
	broken.tiles = slices.Clone(ops.tiles)
	for i := range broken.tiles {
		t, good := &broken.tiles[i], ops.tiles[i]
		if good.rows > most {
			continue
		}
		t.f32 = func(out *float32, outStride int, a *float32, aStride int, w *float32, k, first, fetch, share int) {
			if k > 1 {
				x, at := view(a, (good.rows-1)*aStride/4+k), rowPlace(ops, k-1)
				good.f32(out, outStride, &x[k-1], aStride, &view(w, at+1)[at], 1, first, fetch, share)
				k, first = k-1, 0
			}
			good.f32(out, outStride, a, aStride, w, k, first, fetch, share)
		}
		t.bf16, t.f16 = lastFirstHalf(ops, good, good.bf16), lastFirstHalf(ops, good, good.f16)
	}
	return &broken
}

// rowPlace returns where a panel has the weights of k: the number of elements before them.
func rowPlace(ops *kernels, k int) int {
	return (&matrix{quads: ops.quads}).place(k, 0)
}

// lastFirstHalf is lastFirst for weights of 16 bits.
func lastFirstHalf(ops *kernels, good tile, kernel halfKernel) halfKernel {
	return func(out *float32, outStride int, a *float32, aStride int, w *uint32, k, first, fetch, share int) {
		if k > 1 {
			x, at := view(a, (good.rows-1)*aStride/4+k), rowPlace(ops, k-1)/2
			kernel(out, outStride, &x[k-1], aStride, &unsafe.Slice(w, at+1)[at], 1, first, fetch, share)
			k, first = k-1, 0
		}
		kernel(out, outStride, a, aStride, w, k, first, fetch, share)
	}
}

// valuesLastFirst returns ops with a planted fault: the last value of each page is added first.
func valuesLastFirst(ops *kernels) *kernels {
	broken := *ops
	broken.values = func(out, w *float32, wStride int, v *float32, n, dim, group int) {
		if n > 1 {
			weights, values := view(w, n), view(v, n*dim)
			ops.values(out, &weights[n-1], wStride, &values[(n-1)*dim], 1, dim, group)
		}
		ops.values(out, w, wStride, v, max(n-1, 1), dim, group)
	}
	return &broken
}

// TestBrokenKernelsAreCaught plants kernels with a wrong order of summation and checks that
// the comparisons above detect them.
func TestBrokenKernelsAreCaught(t *testing.T) {
	caught := func(t *testing.T, differs func(r *rand.Rand, ops *kernels, trial int) error, broken *kernels) {
		t.Helper()
		r := rand.New(rand.NewPCG(5, 6))
		for trial := range 100 {
			if differs(r, broken, trial) != nil {
				return
			}
		}
		t.Error("a kernel with another order passed 100 trials")
	}
	eachOwnVector(t, func(t *testing.T, ops *kernels) {
		caught(t, productDiffers, lastFirst(ops, 6))
		caught(t, attendDiffers, valuesLastFirst(ops))
	})
}

// TestVectorPointwise compares the gate (and so Exp32, over the range of f32) and the norm with
// internal/f32.
func TestVectorPointwise(t *testing.T) {
	eachOwnVector(t, func(t *testing.T, ops *kernels) {
		r := rand.New(rand.NewPCG(7, 8))
		g, u, got := make([]float32, 999), make([]float32, 999), make([]float32, 999)
		next := uint32(0)
		for range 500 {
			for i := range g {
				g[i] = math.Float32frombits(next)
				next += 8597 // odd; 500·999 of them go once around 2^32
				if i%2 == 0 {
					g[i] = float32(r.NormFloat64() * 40)
				}
			}
			nasty(r, u, r.IntN(nastyKinds))
			ops.gate(got, g, u)
			for i := range g {
				if want := f32.SiLUMul(g[i], u[i]); !sameBits(got[i], want) {
					t.Fatalf("silu(%x)·%x is %x, want %x", g[i], u[i], got[i], want)
				}
			}
		}
		for trial := range 200 {
			n := 16 * (1 + r.IntN(20))
			x, w, got, want := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
			nasty(r, x, trial%nastyKinds)
			nasty(r, w, trial/nastyKinds%nastyKinds)
			var s sums
			f32.RMSNorm(want, x, w, 1e-5)
			ops.norm(got, x, w, 1e-5, &s)
			for i := range want {
				if !sameBits(got[i], want[i]) {
					t.Fatalf("norm of %d, trial %d: element %d is %x, want %x", n, trial, i, got[i], want[i])
				}
			}
		}
	})
}

// TestPathsGiveTheSameBits runs whole models on every path, one of them with heads
// of 64 and sums longer than blockK, and compares the logits after each chunk.
func TestPathsGiveTheSameBits(t *testing.T) {
	for _, preset := range []random.Preset{random.Demo, random.Tiny} {
		if underRace && preset == random.Tiny {
			continue // the portable path is ten times slower with the detector
		}
		m := testModel(t, preset)
		tokens := randomTokens(1, 19, m.Config().Vocab)
		digests := func(isa ISA) (all []uint64) {
			b := openTest(t, m, Config{PageTokens: 8, KVTokens: 32, Threads: 2, ISA: isa})
			defer b.Close()
			for lo, hi := 0, 0; hi < len(tokens); lo = hi {
				hi = min(lo+1+lo, len(tokens)) // 1, 2, 4, 8 and the rest
				res := wait(t, b, &engine.Batch{Seq: uint64(hi), Rows: []engine.Row{{
					Start: int32(lo), Tokens: tokens[lo:hi], Pages: pageRange(0, kv.CeilPages(hi, 8)), Digest: true,
				}}})
				all = append(all, res.Out[0].Digest)
			}
			return all
		}
		isas := ISAs()
		want := digests(isas[0])
		for _, isa := range isas[1:] {
			for i, got := range digests(isa) {
				if got != want[i] {
					t.Errorf("%s on %s: the logits after chunk %d differ from the portable path's", preset, isa, i)
				}
			}
		}
	}
}
