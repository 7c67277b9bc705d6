package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Dequantize writes the len(dst) values of the blocks in src to dst. Each product and each sum
// is rounded separately, so that the bits are the same on every machine. The type must be
// known. It panics if the lengths do not match.
func Dequantize(t Type, dst []float32, src []byte) {
	l := t.layout()
	if len(dst)%l.values != 0 || len(src) != t.Bytes(len(dst)) {
		panic(fmt.Sprintf("gguf: %d bytes of %v for %d values", len(src), t, len(dst)))
	}
	block := blocks[t]
	for ; len(dst) > 0; dst, src = dst[l.values:], src[l.bytes:] {
		block(dst[:l.values:l.values], src[:l.bytes:l.bytes])
	}
}

// blocks are the functions that dequantise one block.
var blocks = map[Type]func(dst []float32, src []byte){
	F32: func(dst []float32, src []byte) {
		dst[0] = math.Float32frombits(binary.LittleEndian.Uint32(src))
	},
	F16: func(dst []float32, src []byte) { dst[0] = half(src) },
	BF16: func(dst []float32, src []byte) {
		dst[0] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src)) << 16)
	},
	Q4_0: blockQ4, Q4_1: blockQ4m, Q5_0: blockQ5, Q5_1: blockQ5m, Q8_0: blockQ8,
	Q4_K: blockQ4K, Q5_K: blockQ5K, Q6_K: blockQ6K, IQ4_NL: blockIQ4NL, MXFP4: blockMXFP4,
}

// half returns the f32 value of the IEEE 754 binary16 at b: 1 sign bit, 5 exponent bits (bias
// 15), 10 fraction bits.
func half(b []byte) float32 {
	h := binary.LittleEndian.Uint16(b)
	sign, exp, frac := uint32(h>>15)<<31, uint32(h>>10)&31, uint32(h)&1023
	switch exp {
	case 31: // infinity and NaN
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	case 0: // zero and subnormals: frac units of 2^-24, exact in f32
		return math.Float32frombits(sign | math.Float32bits(float32(frac)*(1.0/(1<<24))))
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | frac<<13)
}

// In a block of 32 values, the low nibbles of the 16 bytes are values 0 to 15, the high nibbles
// values 16 to 31.

func blockQ4(dst []float32, src []byte) {
	d := half(src)
	for i, q := range src[2:18] {
		dst[i] = d * float32(int(q&15)-8)
		dst[i+16] = d * float32(int(q>>4)-8)
	}
}

func blockQ4m(dst []float32, src []byte) {
	d, m := half(src), half(src[2:])
	for i, q := range src[4:20] {
		dst[i] = float32(d*float32(q&15)) + m
		dst[i+16] = float32(d*float32(q>>4)) + m
	}
}

func blockQ5(dst []float32, src []byte) {
	d, high := half(src), binary.LittleEndian.Uint32(src[2:])
	for i, q := range src[6:22] {
		dst[i] = d * float32(int(q&15)+int(high>>i&1)<<4-16)
		dst[i+16] = d * float32(int(q>>4)+int(high>>(i+16)&1)<<4-16)
	}
}

func blockQ5m(dst []float32, src []byte) {
	d, m, high := half(src), half(src[2:]), binary.LittleEndian.Uint32(src[4:])
	for i, q := range src[8:24] {
		dst[i] = float32(d*float32(int(q&15)+int(high>>i&1)<<4)) + m
		dst[i+16] = float32(d*float32(int(q>>4)+int(high>>(i+16)&1)<<4)) + m
	}
}

func blockQ8(dst []float32, src []byte) {
	d := half(src)
	for i, q := range src[2:34] {
		dst[i] = d * float32(int8(q))
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

// Sub-blocks of 32 values come in pairs: the two sub-blocks of a pair share 32 bytes of nibbles.

func blockQ4K(dst []float32, src []byte) {
	d, dmin := half(src), half(src[2:])
	scales, quants := src[4:16], src[16:144]
	for i := range 8 {
		scale, minimum := scaleMin(scales, i)
		ds, dm := d*float32(scale), dmin*float32(minimum)
		for j, q := range quants[i/2*32 : i/2*32+32] {
			dst[32*i+j] = float32(ds*float32(q>>(i%2*4)&15)) - dm
		}
	}
}

func blockQ5K(dst []float32, src []byte) {
	d, dmin := half(src), half(src[2:])
	scales, high, quants := src[4:16], src[16:48], src[48:176]
	for i := range 8 {
		scale, minimum := scaleMin(scales, i)
		ds, dm := d*float32(scale), dmin*float32(minimum)
		for j, q := range quants[i/2*32 : i/2*32+32] {
			dst[32*i+j] = float32(ds*float32(q>>(i%2*4)&15|high[j]>>i&1<<4)) - dm
		}
	}
}

// blockQ6K: within each 128 values, the low bits of 0-31 and 64-95 share bytes, as do those of
// 32-63 and 96-127; the high bits of j, j+32, j+64 and j+96 share a byte. Each 16 values have a
// scale.
func blockQ6K(dst []float32, src []byte) {
	low, high, scales, d := src[:128], src[128:192], src[192:208], half(src[208:])
	for i := range 256 {
		part, j := i/128, i%128
		l := low[part*64+j%64] >> (j / 64 * 4) & 15
		h := high[part*32+j%32] >> (j / 32 * 2) & 3
		scale := d * float32(int8(scales[i/16]))
		dst[i] = scale * float32(int(l|h<<4)-32)
	}
}

var valuesIQ4NL = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

func blockIQ4NL(dst []float32, src []byte) {
	d := half(src)
	for i, q := range src[2:18] {
		dst[i] = d * valuesIQ4NL[q&15]
		dst[i+16] = d * valuesIQ4NL[q>>4]
	}
}

// valuesMXFP4 are the values of E2M1, doubled, since their scale is halved.
var valuesMXFP4 = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

func blockMXFP4(dst []float32, src []byte) {
	d := halfE8M0(src[0])
	for i, q := range src[1:17] {
		dst[i] = d * valuesMXFP4[q&15]
		dst[i+16] = d * valuesMXFP4[q>>4]
	}
}

// halfE8M0 returns half of 2^(e-127); for 0 and 1 it is subnormal.
func halfE8M0(e byte) float32 {
	if e < 2 {
		return math.Float32frombits(0x00200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}
