package f32

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestF16 checks that every binary16 value rounds to itself, and that a value between two of them
// rounds to the nearer one, on a tie to the even one.
func TestF16(t *testing.T) {
	for h := range 1 << 16 {
		x := FromF16(uint16(h))
		if x != x {
			if back := FromF16(ToF16(x)); back == back {
				t.Fatalf("NaN %04x became %g", h, back)
			}
			continue
		}
		if got := ToF16(x); got != uint16(h) {
			t.Fatalf("%04x is %g, which rounds to %04x", h, x, got)
		}
		if h&0x7fff >= 0x7bff { // the largest has none after it
			continue
		}
		next := FromF16(uint16(h + 1))
		middle := float32((float64(x) + float64(next)) / 2)
		even := uint16(h + h&1)
		for _, tc := range []struct {
			x    float32
			want uint16
		}{{middle, even}, {nextToward(middle, x), uint16(h)}, {nextToward(middle, next), uint16(h + 1)}} {
			if got := ToF16(tc.x); got != tc.want {
				t.Fatalf("%g rounds to %04x, want %04x", tc.x, got, tc.want)
			}
		}
	}
	for x, want := range map[float32]uint16{65519: 0x7bff, 65520: 0x7c00, -1e30: 0xfc00, float32(math.Inf(1)): 0x7c00, 1e-9: 0} {
		if got := ToF16(x); got != want {
			t.Errorf("%g rounds to %04x, want %04x", x, got, want)
		}
	}
}

func nextToward(x, to float32) float32 { return math.Nextafter32(x, to) }

// TestBF16 compares the rounding with float64 arithmetic on the two neighbours.
func TestBF16(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		bits := r.Uint32()
		if r.IntN(4) == 0 {
			bits = bits&^0xffff | 0x8000 // a tie
		}
		x := math.Float32frombits(bits)
		got := ToBF16(x)
		if x != x {
			if back := FromBF16(got); back == back {
				t.Fatalf("NaN %08x became %g", bits, back)
			}
			continue
		}
		low := uint16(bits >> 16)
		high := low + 1
		a, b := math.Abs(float64(x)-float64(FromBF16(low))), math.Abs(float64(FromBF16(high))-float64(x))
		want := low
		if b < a || b == a && low&1 == 1 || math.IsInf(float64(FromBF16(high)), 0) && bits&0xffff >= 0x8000 {
			want = high
		}
		if math.IsInf(float64(x), 0) {
			want = low
		}
		if got != want {
			t.Fatalf("%08x rounds to %04x, want %04x", bits, got, want)
		}
	}
}
