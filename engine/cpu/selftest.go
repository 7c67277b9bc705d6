package cpu

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/internal/f32"
	"github.com/coppice-llm/coppice/kv"
)

// SelfTest runs each kernel of a path once, on small inputs, and compares its result with that of
// the portable code, bit for bit. It returns nil, or errors that name the kernels that differ. It
// takes about a millisecond the first time; later calls return the same result. A path that the
// machine can't run fails without being tried.
func SelfTest(isa ISA) error {
	if !slices.Contains(ISAs(), isa) {
		return fmt.Errorf("cpu: this machine can't run path %q, only %v", string(isa), ISAs())
	}
	tested.Lock()
	defer tested.Unlock()
	err, ok := tested.results[isa]
	if !ok {
		err = selfTest(kernelsOf(isa))
		tested.results[isa] = err
	}
	return err
}

var tested = struct {
	sync.Mutex
	results map[ISA]error
}{results: map[ISA]error{}}

// prover compares kernels with portable code. It collects the names of kernels that differ.
type prover struct {
	ops    *kernels
	state  uint32
	faulty []error
}

func selfTest(ops *kernels) error {
	if !ops.vector() {
		return nil
	}
	p := &prover{ops: ops, state: 1}
	for i := range ops.tiles {
		p.tile(&ops.tiles[i])
	}
	for _, typ := range gguf.Types() {
		if f := formats[typ]; f != nil {
			p.quantized(f)
		}
	}
	p.attention()
	p.pointwise()
	p.conversions()
	return errors.Join(p.faulty...)
}

// tile checks the kernels of a tile for float weights, in one panel.
func (p *prover) tile(t *tile) {
	const k = 19
	x, rows := p.floats(t.rows*k), make([]float32, vectorCols*rowPlaces(k))
	for c := range vectorCols {
		for i, v := range p.floats(k) {
			rows[c*rowPlaces(k)+i] = f32.FromBF16(f32.ToBF16(v)) // 8 bits, which each type holds
		}
	}
	want := make([]float32, t.rows*vectorCols)
	for i := range want {
		w, a := rows[i%vectorCols*rowPlaces(k):], x[i/vectorCols*k:]
		for j := range k {
			want[i] = f32.FMA32(a[j], w[j], want[i])
		}
	}
	for _, kind := range []kv.DType{kv.F32, kv.BF16, kv.F16} {
		m, kernel := &matrix{n: vectorCols, k: k, cols: vectorCols, kind: kind, quads: p.ops.quads}, any(t.f32)
		switch kind {
		case kv.F32:
			m.panels = make([]float32, vectorCols*m.panelK())
		case kv.BF16:
			m.words, kernel = make([]uint32, wordCols*m.panelK()), t.bf16
		case kv.F16:
			m.words, kernel = make([]uint32, wordCols*m.panelK()), t.f16
		}
		m.fill(0, rows)
		got := make([]float32, len(want))
		t.run(got, vectorCols, x, m, 0, 0, k-7, 0, t.rows) // in two parts
		t.run(got, vectorCols, x[k-7:], m, 0, k-7, 7, 0, t.rows)
		p.same(kernel, fmt.Sprintf("%d rows by %v", t.rows, kind), got, want)
	}
}

// quantized checks the kernels for a format, in one panel.
func (p *prover) quantized(f *quantFormat) {
	const k = superBlocks * quantBlock
	panel := newQuantPanel(f, byBlocks, k, make([]byte, f.panelBytes(k)))
	for i := range panel.data {
		panel.data[i] = byte(p.next() >> 24)
	}
	for i := range len(panel.supers) / 2 {
		p.half(panel.supers[2*i:])
	}
	for b := range k / quantBlock {
		for i, head := 0, panel.data[b*f.blockBytes():][:f.headBytes()]; i < len(head)/f.scaleBytes(); i++ {
			switch at := head[i*f.scaleBytes():]; f.scales {
			case halves:
				p.half(at)
			case floats:
				*(*float32)(unsafe.Pointer(&at[0])) = p.floats(1)[0]
			}
		}
	}
	m := &matrix{n: vectorCols, k: k, cols: vectorCols, quant: []quantPanel{panel.reordered(p.ops.quantOrder())}}
	const rows = 3
	a := newActs(p.ops, rows, k, true, true)
	for r := range rows {
		a.set(r, p.floats(k))
	}
	records := a.records[:rows*recordStride(k)]
	for _, n := range []int{1, rows} { // kernels may have code of their own for one row
		got, want := make([]float32, n*vectorCols), make([]float32, n*vectorCols)
		p.ops.quantPanelProduct(nil, got, vectorCols, records, m, 0, 0, n)
		panel.product(want, vectorCols, records[:n*recordStride(k)], n)
		p.same(p.ops.quant.byKind[f.kind], fmt.Sprintf("%d rows by %v", n, f.typ), got, want)
	}
}

// attention checks scores, softmax and weighted values of two heads over seven positions.
func (p *prover) attention() {
	const dim, n, group, room = 48, 7, 3, 16
	q, k, v, scale := p.floats(group*dim), p.floats(n*dim), p.floats(n*dim), float32(0.125)
	got, want := make([]float32, group*room), make([]float32, group*room)
	for g := range group {
		for i := range n {
			want[g*room+i] = float32(f32.Dot(q[g*dim:(g+1)*dim], k[i*dim:(i+1)*dim]) * scale)
		}
	}
	p.ops.scores(&got[0], 4*room, &q[0], &k[0], n, dim, group, scale)
	p.same(p.ops.scores, "scores", got, want)
	copy(got, want)
	for g := range group {
		var s sums
		row, sum := got[g*room:(g+1)*room], softmaxWeights(want[g*room:g*room+n])
		for i := n; i < room; i++ {
			row[i] = float32(math.Inf(-1))
		}
		p.ops.softmax(&row[0], room, &s[0])
		p.same(p.ops.softmax, "weights", row, want[g*room:(g+1)*room])
		p.same(p.ops.softmax, "sum", []float32{f32.Tree16((*[f32.Lanes]float32)(&s))}, []float32{sum})
	}
	out, sums := p.floats(group*dim), make([]float32, group*dim)
	for i, s := range out {
		for j := range n {
			s = f32.FMA32(want[i/dim*room+j], v[j*dim+i%dim], s)
		}
		sums[i] = s
	}
	p.ops.values(&out[0], &want[0], 4*room, &v[0], n, dim, group)
	p.same(p.ops.values, "values", out, sums)
}

// pointwise checks the kernels that compute element by element, and the sum of squares.
func (p *prover) pointwise() {
	const n, k = 96, 2
	x, y, w, got, want := p.floats(n), p.floats(n), p.floats(n), make([]float32, n), make([]float32, n)
	for i := range y { // a wide range of gates
		y[i] *= 20
	}
	var squares, lanes sums
	for i, v := range x {
		lanes[i%f32.Lanes] = f32.FMA32(v, v, lanes[i%f32.Lanes])
	}
	p.ops.squares(&x[0], n, &squares[0])
	p.same(p.ops.squares, "squares", squares[:], lanes[:])
	for i := range want {
		want[i] = float32(float32(x[i]*0.3) * w[i])
	}
	p.ops.scale(&got[0], &x[0], &w[0], 0.3, n)
	p.same(p.ops.scale, "scaled", got, want)
	for i := range want {
		want[i] = f32.SiLUMul(y[i], x[i])
	}
	p.ops.silu(&got[0], &y[0], &x[0], n)
	p.same(p.ops.silu, "gate", got, want)
	tile, pairs := p.floats(k*vectorCols), make([]float32, k*pairCols)
	for i := range pairs {
		row := tile[i/pairCols*vectorCols:]
		pairs[i] = f32.SiLUMul(row[i%pairCols], row[pairCols+i%pairCols])
	}
	p.ops.siluPairs(&got[0], 4*pairCols, &tile[0], k)
	p.same(p.ops.siluPairs, "gate", got, pairs)
	for i := range want {
		got[i], want[i] = x[i], x[i]+y[i]
	}
	p.ops.add(&got[0], &y[0], n)
	p.same(p.ops.add, "sum", got, want)
	r := &rope{half: n / 2, cos: w[:n/2], sin: w[n/2:]}
	copy(got, x)
	copy(want, x)
	r.rotate(want, 0)
	p.ops.rotate(&got[0], &r.cos[0], &r.sin[0], r.half)
	p.same(p.ops.rotate, "rotation", got, want)
}

// half stores an f16 of moderate size.
func (p *prover) half(dst []byte) {
	h := f32.ToF16(p.floats(1)[0])
	dst[0], dst[1] = byte(h), byte(h>>8)
}

// conversions checks the rounding and the widening of stored types, and the records of activations.
func (p *prover) conversions() {
	const rows, dim = 2, 64
	x, got, want := p.floats(rows*dim), make([]float32, rows*dim), make([]float32, rows*dim)
	for kind, kernel := range map[kv.DType]any{kv.F16: p.ops.widenF16, kv.BF16: p.ops.widenBF16, kv.Q8_0: p.ops.widenQ8} {
		data := make([]byte, rows*kind.Size(dim))
		for r := range rows {
			row := data[r*kind.Size(dim):][:kind.Size(dim)]
			encodeRow(kind, row, x[r*dim:(r+1)*dim])
			decodeRow(kind, want[r*dim:(r+1)*dim], row)
		}
		p.ops.widen(kind, got, data, rows, dim)
		p.same(kernel, "widened", got, want)
	}
	p.sameBytes(p.ops.narrowF16, 2*dim, func(dst []byte) { p.ops.narrow(kv.F16, dst, x[:dim]) }, func(dst []byte) { encodeRow(kv.F16, dst, x[:dim]) })
	records := dim / quantBlock * recordBytes
	p.sameBytes(p.ops.quantize, records, func(dst []byte) { p.ops.quantizeRow(dst, x[:dim]) }, func(dst []byte) { portable.quantizeRow(dst, x[:dim]) })
}

// floats returns n values in [-2, 2), of 24 bits and of different sizes.
func (p *prover) floats(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = (float32(float32(p.next()>>8)*0x1p-23) - 1) * float32(uint32(1)<<(p.next()>>30)) / 4
	}
	return v
}

// next returns the next of a fixed sequence of pseudo-random numbers (Numerical Recipes' generator).
func (p *prover) next() uint32 {
	p.state = p.state*1664525 + 1013904223
	return p.state
}

// same notes kernel as faulty unless got equals want, bit for bit.
func (p *prover) same(kernel any, what string, got, want []float32) {
	for i, v := range want {
		if math.Float32bits(got[i]) != math.Float32bits(v) {
			p.fault(kernel, what, i, got[i], v)
			return
		}
	}
}

// sameBytes notes kernel as faulty unless both functions write the same n bytes.
func (p *prover) sameBytes(kernel any, n int, write, portable func(dst []byte)) {
	got, want := make([]byte, n), make([]byte, n)
	write(got)
	portable(want)
	if !bytes.Equal(got, want) {
		i := 0
		for got[i] == want[i] {
			i++
		}
		p.fault(kernel, "bytes", i, got[i], want[i])
	}
}

func (p *prover) fault(kernel any, what string, i int, got, want any) {
	name := runtime.FuncForPC(reflect.ValueOf(kernel).Pointer()).Name()
	p.faulty = append(p.faulty, fmt.Errorf("cpu: kernel %s differs from portable code: %s, element %d is %v, want %v", name[strings.LastIndexByte(name, '.')+1:], what, i, got, want))
}
