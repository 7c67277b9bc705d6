package gguf

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/coppice-llm/coppice/internal/f32"
)

// Dequantize writes the len(dst) values of the blocks in src to dst. Each product and each sum
// is rounded separately, so that the bits are the same on every machine; NaNs of plain floats keep
// sign and payload. The type must be known. It panics if the lengths do not match.
func Dequantize(t Type, dst []float32, src []byte) {
	l := t.layout()
	if len(dst)%l.values != 0 || len(src) != t.Bytes(len(dst)) {
		panic(fmt.Sprintf("gguf: %d bytes of %v for %d values", len(src), t, len(dst)))
	}
	switch t {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
		return
	case F16:
		for i := range dst {
			dst[i] = half(src[2*i:])
		}
		return
	case BF16:
		for i := range dst {
			dst[i] = f32.FromBF16(binary.LittleEndian.Uint16(src[2*i:]))
		}
		return
	}
	var b Block
	for ; len(dst) > 0; dst, src = dst[l.values:], src[l.bytes:] {
		t.unpack(l, &b, src[:l.bytes])
		for s := range l.values / l.sub {
			scale, minimum := b.Scales[s], b.Mins[s]
			quants := b.Quants[s*l.sub:][:l.sub]
			out := dst[s*l.sub:][:len(quants)]
			for i, q := range quants {
				out[i] = scale * float32(q)
			}
			if l.mins {
				for i := range out {
					out[i] += minimum
				}
			}
		}
	}
}

// half returns the f32 value of the binary16 at b.
func half(b []byte) float32 { return f32.FromF16(binary.LittleEndian.Uint16(b)) }

// halfE8M0 returns half of 2^(e-127); for 0 and 1 it is subnormal.
func halfE8M0(e byte) float32 {
	if e < 2 {
		return math.Float32frombits(0x00200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}
