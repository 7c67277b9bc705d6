package mempool

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

func TestView(t *testing.T) {
	s := Storage{Tier: kv.TierDevice, Addr: 0x1000, Bytes: 2 * 3 * 4 * 2}
	v, err := NewView(s, kv.BF16, 2, 3, 4)
	if err != nil || v.Elements() != 24 || v.Bytes() != 48 || !v.Contiguous() {
		t.Fatalf("%+v, %v", v, err)
	}
	if a, err := v.Address(1, 2, 3); err != nil || a != 0x1000+46 {
		t.Errorf("address %x, %v", a, err)
	}
	w, err := v.Slice(1, 1, 3)
	if err != nil || w.Contiguous() || w.Elements() != 16 {
		t.Fatalf("%+v, %v", w, err)
	}
	if at, err := w.Offset(1, 0, 2); err != nil || at != (12+4+2)*2 {
		t.Errorf("offset %d, %v", at, err)
	}
	for _, index := range [][]int{{}, {0, 0}, {2, 0, 0}, {0, 2, 0}, {0, -1, 0}, {0, 0, 4}} {
		if _, err := w.Offset(index...); err == nil {
			t.Errorf("index %v is in shape %v", index, w.Shape())
		}
	}
	for _, cut := range [][3]int{{3, 0, 1}, {-1, 0, 1}, {0, 1, 0}, {0, -1, 1}, {0, 0, 3}} {
		if _, err := v.Slice(cut[0], cut[1], cut[2]); err == nil {
			t.Errorf("slice %v is allowed", cut)
		}
	}
	for _, shape := range [][]int{{25}, {-1}, {math.MaxInt, 2}, {math.MaxInt / 2, math.MaxInt / 2}} {
		if _, err := NewView(s, kv.BF16, shape...); err == nil {
			t.Errorf("shape %v fits %d bytes", shape, s.Bytes)
		}
	}
	if _, err := NewView(Storage{Bytes: 100}, kv.Q8_0, 32); err == nil {
		t.Error("a view of blocks")
	}
	if v, err := NewView(Storage{}, kv.F32, 3, 0); err != nil || v.Elements() != 0 {
		t.Errorf("an empty view: %v", err)
	}
}

// TestCopies compares the copies of random slices, in both directions, with copies made element by
// element.
func TestCopies(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 500 {
		d := []kv.DType{kv.F32, kv.F16, kv.U8}[rng.IntN(3)]
		shape := []int{1 + rng.IntN(4), 1 + rng.IntN(3), 1 + rng.IntN(4)}
		big := []int{shape[0] + rng.IntN(2), shape[1] + rng.IntN(2), shape[2] + rng.IntN(2)}
		var mem [2][]byte
		var views [2]View
		for i, sides := range [][]int{big, shape} {
			mem[i] = make([]byte, sides[0]*sides[1]*sides[2]*d.Bytes())
			for j := range mem[i] {
				mem[i][j] = byte(rng.Uint32())
			}
			v, err := NewView(Storage{Bytes: int64(len(mem[i]))}, d, sides...)
			for side := range shape {
				if err == nil {
					lo := rng.IntN(sides[side] - shape[side] + 1)
					v, err = v.Slice(side, lo, lo+shape[side])
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			views[i] = v
		}
		to, from := rng.IntN(2), 0
		from = 1 - to
		want := bytes.Clone(mem[to])
		for a := range shape[0] {
			for b := range shape[1] {
				for c := range shape[2] {
					x, _ := views[to].Offset(a, b, c)
					y, _ := views[from].Offset(a, b, c)
					copy(want[x:], mem[from][y:y+int64(d.Bytes())])
				}
			}
		}
		copies, err := AppendCopies(nil, views[to], views[from])
		if err != nil {
			t.Fatal(err)
		}
		Transfer(mem[to], mem[from], copies)
		if !bytes.Equal(mem[to], want) {
			t.Fatalf("copies %v of %v", copies, shape)
		}
		if views[0].Contiguous() && views[1].Contiguous() && len(copies) != 1 {
			t.Errorf("%d copies between two runs", len(copies))
		}
	}
	a, _ := NewView(Storage{Bytes: 100}, kv.U8, 10)
	b, _ := NewView(Storage{Bytes: 100}, kv.U8, 5, 2)
	if _, err := AppendCopies(nil, a, b); err == nil {
		t.Error("other shapes are copied")
	}
}

func TestReservations(t *testing.T) {
	p, _ := NewPool(10)
	r := NewReservations(p)
	if got, err := r.Reserve(1, 4); err != nil || len(got) != 4 {
		t.Fatal(got, err)
	}
	if _, err := r.Reserve(1, 1); !errors.Is(err, ErrReserved) {
		t.Error(err)
	}
	if _, err := r.Reserve(2, 7); !errors.Is(err, ErrExhausted) {
		t.Error(err)
	}
	if got, err := r.Extend(1, 5); err != nil || len(got) != 9 {
		t.Error(got, err)
	}
	if _, err := r.Extend(1, 2); !errors.Is(err, ErrExhausted) || r.Pages() != 9 {
		t.Error(err, r.Pages())
	}
	if m := p.Metrics(); m.String() != "available 1  inflight 9  total 10  utilization 0.900" {
		t.Error(m)
	}
	if err := r.Release(2); !errors.Is(err, ErrNotReserved) {
		t.Error(err)
	}
	if err := r.Release(1); err != nil || r.Owners() != 0 || r.Pages() != 0 || p.FreePages() != 10 {
		t.Error(err, p.FreePages())
	}
	if err := r.Release(1); !errors.Is(err, ErrNotReserved) {
		t.Error(err)
	}
	if _, err := r.Extend(1, 1); !errors.Is(err, ErrNotReserved) {
		t.Error(err)
	}
}

// TestStoreMetricsString is the form that people and logs see.
func TestStoreMetricsString(t *testing.T) {
	m := StoreMetrics{Extents: 3, Bytes: 300, CapacityBytes: 1000, OpenOps: 1, Damaged: 2}
	m.Puts = OpMetrics{OK: 4, Bytes: 400, Time: 5 * time.Millisecond}
	m.Gets = OpMetrics{OK: 1, Missed: 2, Late: 3, Canceled: 4, Failed: 5}
	const want = `extents 3  bytes 300 of 1000 (30.0%)  open 1  damaged 2
put    ok 4  missed 0  late 0  canceled 0  failed 0  bytes 400  time 5ms
get    ok 1  missed 2  late 3  canceled 4  failed 5  bytes 0  time 0s
drop   ok 0  missed 0  late 0  canceled 0  failed 0  bytes 0  time 0s
probe  ok 0  missed 0  late 0  canceled 0  failed 0  bytes 0  time 0s
flush  ok 0  missed 0  late 0  canceled 0  failed 0  bytes 0  time 0s
`
	if m.String() != want {
		t.Errorf("got\n%s", m)
	}
}

// BenchmarkReservations: what the specification bounds by 1 ms and 0.5 ms.
func BenchmarkReservations(b *testing.B) {
	p, _ := NewPool(1 << 16)
	r := NewReservations(p)
	for b.Loop() {
		r.Reserve(1, 64)
		r.Release(1)
	}
}
