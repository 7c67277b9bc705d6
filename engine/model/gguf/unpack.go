package gguf

import (
	"encoding/binary"
	"fmt"
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

// SubBlock returns the number of values that share a scale, 0 for plain floats. The type must
// be known.
func (t Type) SubBlock() int {
	switch t {
	case F32, F16, BF16:
		return 0
	case Q6_K:
		return 16
	}
	return 32
}

// HasMins reports whether a minimum is added to scaled values.
func (t Type) HasMins() bool { return t == Q4_1 || t == Q5_1 || t == Q4_K || t == Q5_K }

// Unpack unpacks one block from its bytes, src, into b. It panics if the type is no block format
// or src is not one block. Fields of b that the type does not use keep their values.
func Unpack(t Type, b *Block, src []byte) {
	if len(src) != t.BlockBytes() {
		panic(fmt.Sprintf("gguf: %d bytes for a block of %v", len(src), t))
	}
	switch t {
	case Q4_0:
		b.Scales[0] = half(src)
		b.nibbles(src[2:], func(q byte) int8 { return int8(q) - 8 })
	case Q4_1:
		b.Scales[0], b.Mins[0] = half(src), half(src[2:])
		b.nibbles(src[4:], func(q byte) int8 { return int8(q) })
	case Q5_0, Q5_1:
		b.five(t, src)
	case Q8_0:
		b.Scales[0] = half(src)
		for i, q := range src[2:] {
			b.Quants[i] = int8(q)
		}
	case IQ4_NL:
		b.Scales[0] = half(src)
		b.nibbles(src[2:], func(q byte) int8 { return int8(valuesIQ4NL[q]) })
	case MXFP4:
		b.Scales[0] = halfE8M0(src[0])
		b.nibbles(src[1:], func(q byte) int8 { return int8(valuesMXFP4[q]) })
	case Q4_K, Q5_K:
		b.scaleMins(t, src)
	case Q6_K:
		b.six(src)
	default:
		panic(fmt.Sprintf("gguf: %v has no blocks", t))
	}
}

// nibbles unpacks 32 values from 16 bytes: values 0 to 15 are in the low halves of the bytes, the
// others in the high halves. The function value converts a nibble to a weight.
func (b *Block) nibbles(src []byte, value func(byte) int8) {
	for i, q := range src[:16] {
		b.Quants[i], b.Quants[i+16] = value(q&15), value(q>>4)
	}
}

func (b *Block) five(t Type, src []byte) {
	b.Scales[0] = half(src)
	src = src[2:]
	bias := int8(16)
	if t == Q5_1 {
		b.Mins[0], bias = half(src), 0
		src = src[2:]
	}
	high := binary.LittleEndian.Uint32(src)
	for i, q := range src[4:20] {
		b.Quants[i] = int8(q&15|byte(high>>i&1)<<4) - bias
		b.Quants[i+16] = int8(q>>4|byte(high>>(i+16)&1)<<4) - bias
	}
}

func (b *Block) scaleMins(t Type, src []byte) {
	d, dmin, scales, quants := half(src), half(src[2:]), src[4:16], src[16:]
	b.Super, b.SuperMin = binary.LittleEndian.Uint16(src), binary.LittleEndian.Uint16(src[2:])
	var high []byte
	if t == Q5_K {
		high, quants = quants[:32], quants[32:]
	}
	for i := range 8 {
		scale, minimum := scaleMin(scales, i)
		b.Factors[i], b.MinFactors[i] = scale, minimum
		b.Scales[i], b.Mins[i] = d*float32(scale), -(dmin * float32(minimum))
		for j := range 32 {
			q := quants[i/2*32+j] >> (i % 2 * 4) & 15
			if high != nil {
				q |= high[j] >> i & 1 << 4
			}
			b.Quants[32*i+j] = int8(q)
		}
	}
}

func (b *Block) six(src []byte) {
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
