package gguf

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/coppice-llm/coppice/internal/f32"
)

// Block is an unpacked block of quantised values: value i is Quants[i]·Scales[i/n] + Mins[i/n],
// rounded after each step, with n = [Type.SubBlock]. Without minima (see [Type.HasMins])
// nothing is added.
//
// In K types a scale is the f16 Super times an integer (signed in Q6_K), and a minimum is
// -SuperMin times an integer; both products are exact. In other types these fields are unused.
type Block struct {
	Quants [256]int8
	Scales [16]float32
	Mins   [16]float32

	Super, SuperMin     uint16
	Factors, MinFactors [16]byte
}

// Unpack unpacks one block from its bytes, src, into b. It panics if the type is no block format
// or src is not one block. Fields of b that the type does not use keep their values.
func Unpack(t Type, b *Block, src []byte) {
	l := t.layout()
	if l.sub == 0 || len(src) != l.bytes {
		panic(fmt.Sprintf("gguf: %d bytes for a block of %v", len(src), t))
	}
	t.unpack(l, b, src)
}

// unpack is Unpack for a block of layout l. The calls are direct, so that b may be on the stack.
func (t Type) unpack(l *layout, b *Block, src []byte) {
	switch t {
	case Q8_0:
		unpackQ8(b, src)
	case Q4_K, Q5_K:
		unpackK(l, b, src)
	case Q6_K:
		unpackQ6K(b, src)
	case MXFP4:
		unpackMXFP4(l, b, src)
	default:
		unpack32(l, b, src)
	}
}

// unpack32 unpacks a block of 32 values: the scale, the minimum if the type has them, bit 4 of all
// codes if they have five bits, and nibbles.
func unpack32(l *layout, b *Block, src []byte) {
	b.Scales[0] = half(src)
	src = src[2:]
	if l.mins {
		b.Mins[0] = half(src)
		src = src[2:]
	}
	high := uint32(0)
	if l.high > 0 {
		high = binary.LittleEndian.Uint32(src)
		src = src[4:]
	}
	b.nibbles(l, src, high)
}

func unpackMXFP4(l *layout, b *Block, src []byte) {
	b.Scales[0] = halfE8M0(src[0])
	b.nibbles(l, src[1:], 0)
}

// nibbles unpacks 32 values from 16 bytes: values 0 to 15 are in the low halves of the bytes, the
// others in the high halves. Bit i of high is bit 4 of code i.
func (b *Block) nibbles(l *layout, src []byte, high uint32) {
	for i, q := range src[:16] {
		b.Quants[i] = l.weights[q&15|byte(high>>i&1)<<4]
		b.Quants[i+16] = l.weights[q>>4|byte(high>>(i+16)&1)<<4]
	}
}

func unpackQ8(b *Block, src []byte) {
	b.Scales[0] = half(src)
	for i, q := range src[2:] {
		b.Quants[i] = int8(q)
	}
}

// scaleMin returns the scale and the minimum of sub-block i of a K block, 6 bits each; s is the
// block's 12 bytes of them. For the first four sub-blocks they are the low 6 bits of bytes 0 to 7.
// For the others, bytes 8 to 11 have the low 4 bits as nibbles, and the top 2 bits of bytes 0 to 7
// are their upper 2 bits.
func scaleMin(s []byte, i int) (scale, minimum byte) {
	if i < 4 {
		return s[i] & 63, s[i+4] & 63
	}
	return s[i+4]&15 | s[i-4]>>6<<4, s[i+4]>>4 | s[i]>>6<<4
}

// unpackK unpacks a block of Q4_K or Q5_K. Its sub-blocks of 32 values come in pairs: the two
// sub-blocks of a pair share 32 bytes of nibbles. Bit i of 32 further bytes is bit 4 of sub-block i.
func unpackK(l *layout, b *Block, src []byte) {
	d, dmin, scales, high := half(src), half(src[2:]), src[4:16], src[16:48]
	quants := src[16+32*l.high:]
	b.Super, b.SuperMin = binary.LittleEndian.Uint16(src), binary.LittleEndian.Uint16(src[2:])
	for i := range 8 {
		scale, minimum := scaleMin(scales, i)
		b.Factors[i], b.MinFactors[i] = scale, minimum
		b.Scales[i], b.Mins[i] = d*float32(scale), -(dmin * float32(minimum))
		out := b.Quants[32*i:][:32]
		for j, q := range quants[i/2*32:][:32] {
			out[j] = int8(q >> (i % 2 * 4) & 15)
		}
		if l.high > 0 {
			for j, bits := range high {
				out[j] |= int8(bits >> i & 1 << 4)
			}
		}
	}
}

// unpackQ6K: within each 128 values, the low bits of 0-31 and 64-95 share bytes, as do those of
// 32-63 and 96-127; the high bits of j, j+32, j+64 and j+96 share a byte. Each 16 values have a
// scale.
func unpackQ6K(b *Block, src []byte) {
	low, high, scales, d := src[:128], src[128:192], src[192:208], half(src[208:])
	b.Super, b.Factors = binary.LittleEndian.Uint16(src[208:]), [16]byte(scales)
	for i := range 16 {
		b.Scales[i] = d * float32(int8(scales[i]))
	}
	for i := range 256 {
		part, j := i/128, i%128
		l, h := low[part*64+j%64]>>(j/64*4)&15, high[part*32+j%32]>>(j/32*2)&3
		b.Quants[i] = int8(l|h<<4) - 32
	}
}

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
