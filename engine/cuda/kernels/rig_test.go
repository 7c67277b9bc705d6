package kernels_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

// rig runs kernels in the interpreter.
type rig struct {
	t       testing.TB
	m       *ptxvm.Machine
	s       ptxvm.Stream
	changed *ptxvm.Module // if not nil, its kernels replace those of the module
}

// modules caches the decoded modules.
var modules = map[string]*ptxvm.Module{}

func newRig(t testing.TB, names ...string) *rig {
	t.Helper()
	r := &rig{t: t, m: ptxvm.New(ptxvm.Config{})}
	r.s = r.m.NewStream()
	for _, n := range names {
		if modules[n] == nil {
			m, err := ptxvm.Parse(n, kernels.PTX(n))
			if err != nil {
				t.Fatal(err)
			}
			modules[n] = m
		}
	}
	return r
}

type pointer uint64

// args lays out parameters as a kernel reads them.
func args(values ...any) []byte {
	var b []byte
	for _, v := range values {
		n := binary.Size(v)
		for len(b)%n != 0 {
			b = append(b, 0)
		}
		b, _ = binary.Append(b, binary.LittleEndian, v)
	}
	return b
}

func (r *rig) try(module, kernel string, grid ptxvm.Dim, threads, shared int, values ...any) error {
	from := modules[module]
	if r.changed != nil && r.changed.Kernel(kernel) != nil {
		from = r.changed
	}
	k := from.Kernel(kernel)
	if k == nil {
		r.t.Fatalf("no kernel %s in %s", kernel, module)
	}
	l := ptxvm.Launch{Grid: grid, Block: ptxvm.Dim{X: threads}, SharedBytes: shared, Args: args(values...)}
	if err := r.m.Launch(r.s, k, l); err != nil {
		return err
	}
	return r.m.SyncStream(r.s)
}

func (r *rig) launch(module, kernel string, grid ptxvm.Dim, threads, shared int, values ...any) {
	r.t.Helper()
	if err := r.try(module, kernel, grid, threads, shared, values...); err != nil {
		r.t.Fatal(err)
	}
}

// room allocates n bytes that are not initialised.
func (r *rig) room(n int) pointer {
	r.t.Helper()
	p, err := r.m.Alloc(n)
	if err != nil {
		r.t.Fatal(err)
	}
	return pointer(p)
}

// put copies a slice of numbers or structs to new device memory.
func put[T any](r *rig, data []T) pointer {
	r.t.Helper()
	b, err := binary.Append(nil, binary.LittleEndian, data)
	if err != nil {
		r.t.Fatal(err)
	}
	p := r.room(max(len(b), 1))
	r.write(p, b)
	return p
}

// write copies bytes to device memory.
func (r *rig) write(to pointer, b []byte) {
	r.t.Helper()
	if err := r.m.CopyIn(r.s, uint64(to), b); err != nil {
		r.t.Fatal(err)
	}
}

// get returns n values from device memory.
func get[T any](r *rig, p pointer, n int) []T {
	r.t.Helper()
	out := make([]T, n)
	b := make([]byte, binary.Size(out))
	if err := r.m.CopyOut(r.s, b, uint64(p)); err != nil {
		r.t.Fatal(err)
	}
	if err := r.m.SyncStream(r.s); err != nil {
		r.t.Fatal(err)
	}
	if _, err := binary.Decode(b, binary.LittleEndian, out); err != nil {
		r.t.Fatal(err)
	}
	return out
}

func narrow(x float32) uint16 {
	u := math.Float32bits(x)
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

func widen(b uint16) float64 { return float64(math.Float32frombits(uint32(b) << 16)) }

// bf16s returns n normal values times scale, in bf16.
func bf16s(g *rand.Rand, n int, scale float64) []uint16 {
	v := make([]uint16, n)
	for i := range v {
		v[i] = narrow(float32(g.NormFloat64() * scale))
	}
	return v
}

func floats(g *rand.Rand, n int, scale float64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(g.NormFloat64() * scale)
	}
	return v
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 5)) }

// relative returns the L2 distance of got from want, divided by want's length.
func relative(got, want []float64) float64 {
	var d, n float64
	for i := range want {
		d += (got[i] - want[i]) * (got[i] - want[i])
		n += want[i] * want[i]
	}
	return math.Sqrt(d / n)
}

func wide[T float32 | uint16](v []T) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		switch x := any(x).(type) {
		case float32:
			out[i] = float64(x)
		case uint16:
			out[i] = widen(x)
		}
	}
	return out
}

// near fails unless the relative distance is at most limit.
func near(t testing.TB, what string, got, want []float64, limit float64) {
	t.Helper()
	if d := relative(got, want); !(d <= limit) {
		t.Errorf("%s: relative distance %.3g from the reference, at most %.3g", what, d, limit)
	}
}

// equal fails unless all bits are equal.
func equal[T float32 | uint16 | uint32 | int32](t testing.TB, what string, got, want []T) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	bits := func(x T) uint64 {
		if f, ok := any(x).(float32); ok {
			return uint64(math.Float32bits(f))
		}
		return uint64(x)
	}
	for i := range got {
		if bits(got[i]) != bits(want[i]) {
			t.Fatalf("%s: value %d is %v (%#x), want %v (%#x)", what, i, got[i], bits(got[i]), want[i], bits(want[i]))
		}
	}
}
