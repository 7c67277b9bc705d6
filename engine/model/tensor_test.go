package model

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// all16 returns every 16-bit pattern, little-endian, at an odd address.
func all16() []byte {
	data := make([]byte, 1, 1+2<<16)
	for i := range 1 << 16 {
		data = binary.LittleEndian.AppendUint16(data, uint16(i))
	}
	return data[1:]
}

// value16 decodes a 16-bit float by the definition in IEEE 754: from the widths of its fields,
// with math.Ldexp, in f64.
func value16(bits uint16, expBits, fracBits int) (v float64, nan bool) {
	sign := 1.0
	if bits>>15 == 1 {
		sign = -1
	}
	exp := int(bits) >> fracBits & (1<<expBits - 1)
	frac := float64(int(bits) & (1<<fracBits - 1))
	bias := 1<<(expBits-1) - 1
	switch {
	case exp == 1<<expBits-1 && frac != 0:
		return 0, true
	case exp == 1<<expBits-1:
		return math.Inf(int(sign)), false
	case exp == 0:
		return math.Copysign(math.Ldexp(frac, 1-bias-fracBits), sign), false
	}
	return sign * math.Ldexp(1+math.Ldexp(frac, -fracBits), exp-bias), false
}

func TestWidenIsExactForAll16BitPatterns(t *testing.T) {
	for _, tc := range []struct {
		dtype             kv.DType
		expBits, fracBits int
	}{{kv.F16, 5, 10}, {kv.BF16, 8, 7}} {
		tensor := &Tensor{Name: "all", DType: tc.dtype, Shape: []int{1 << 16}, Data: all16()}
		got := make([]float32, 1<<16)
		tensor.Widen(got, 0, len(got))
		for i, g := range got {
			want, nan := value16(uint16(i), tc.expBits, tc.fracBits)
			if nan {
				if g == g || math.Signbit(float64(g)) != (i>>15 == 1) {
					t.Fatalf("%v %#04x: %v, want a NaN of that sign", tc.dtype, i, g)
				}
				if payload := math.Float32bits(g) << 9 >> (32 - tc.fracBits); payload != uint32(i)&(1<<tc.fracBits-1) {
					t.Fatalf("%v %#04x: NaN payload %#x", tc.dtype, i, payload)
				}
				continue
			}
			if float64(g) != want || math.Signbit(float64(g)) != math.Signbit(want) {
				t.Fatalf("%v %#04x: %v, want %v", tc.dtype, i, g, want)
			}
		}
	}
}

func TestWidenF32KeepsBits(t *testing.T) {
	patterns := []uint32{0, 1, 1 << 31, 0x3f800000, 0x7f800000, 0xff800000, 0x7fc00001, 0x007fffff, 0x7f7fffff, 0xdeadbeef}
	data := []byte{0} // odd address
	for _, p := range patterns {
		data = binary.LittleEndian.AppendUint32(data, p)
	}
	tensor := &Tensor{Name: "f32", DType: kv.F32, Shape: []int{len(patterns)}, Data: data[1:]}
	got := make([]float32, len(patterns))
	tensor.Widen(got, 0, len(got))
	for i, p := range patterns {
		if b := math.Float32bits(got[i]); b != p {
			t.Errorf("element %d: %#x, want %#x", i, b, p)
		}
	}
}

func TestWidenRange(t *testing.T) {
	for _, dtype := range []kv.DType{kv.F32, kv.F16, kv.BF16} {
		tensor := &Tensor{Name: "t", DType: dtype, Shape: []int{4}, Data: make([]byte, 4*dtype.Bytes())}
		if dtype == kv.BF16 {
			binary.LittleEndian.PutUint16(tensor.Data[4:], 0x4040) // element 2 is 3
		}
		dst := []float32{9, 9, 9}
		tensor.Widen(dst, 2, 4)
		if dtype == kv.BF16 && (dst[0] != 3 || dst[1] != 0) || dst[2] != 9 {
			t.Errorf("%v: %v", dtype, dst)
		}
		for _, r := range [][2]int{{-1, 2}, {3, 2}, {3, 5}, {0, 4}} { // the last one does not fit dst
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%v: range %v into 3 elements is accepted", dtype, r)
					}
				}()
				tensor.Widen(dst, r[0], r[1])
			}()
		}
	}
}
