package writer

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/internal/f32"
)

// Quantize writes src as blocks of t to dst, which must have t.Bytes(len(src)) bytes. It uses
// plain rules (the largest magnitude or the range of a block sets its scale) rather than ggml's
// searches, as it only writes generated models. The values must be finite. The bytes are the
// same on every machine.
func Quantize(t gguf.Type, dst []byte, src []float32) {
	values, bytes := t.BlockValues(), t.BlockBytes()
	if len(src)%values != 0 || len(dst) != t.Bytes(len(src)) {
		panic(fmt.Sprintf("writer: %d bytes of %v for %d values", len(dst), t, len(src)))
	}
	for ; len(src) > 0; dst, src = dst[bytes:], src[values:] {
		clear(dst[:bytes])
		quantize(t, dst[:bytes:bytes], src[:values:values])
	}
}

// quantize writes a block of t to dst, which is zero.
func quantize(t gguf.Type, dst []byte, src []float32) {
	switch t {
	case gguf.F32:
		binary.LittleEndian.PutUint32(dst, math.Float32bits(src[0]))
	case gguf.F16:
		putHalf(dst, src[0])
	case gguf.BF16:
		binary.LittleEndian.PutUint16(dst, f32.ToBF16(src[0]))
	case gguf.Q8_0:
		quantizeQ8(dst, src)
	case gguf.Q4_K:
		quantizeK(0, dst, src)
	case gguf.Q5_K:
		quantizeK(1, dst, src)
	case gguf.Q6_K:
		quantizeQ6K(dst, src)
	case gguf.IQ4_NL:
		quantizeIQ4NL(dst, src)
	case gguf.MXFP4:
		quantizeMXFP4(dst, src)
	default:
		quantize32(t, dst, src)
	}
}

// putHalf stores v rounded to binary16, ties to even, and returns the rounded value.
func putHalf(dst []byte, v float32) float32 {
	binary.LittleEndian.PutUint16(dst, f32.ToF16(v))
	return f32.FromF16(binary.LittleEndian.Uint16(dst))
}

// nearest returns v/step as an integer in [lo, hi]; 0 if step is 0.
func nearest(v, step float32, lo, hi int) int {
	if step == 0 {
		return 0
	}
	q := math.RoundToEven(float64(v) / float64(step))
	return int(min(max(q, float64(lo)), float64(hi)))
}

// largest returns the value of src with the largest magnitude, with its sign.
func largest(src []float32) float32 {
	most := float32(0)
	for _, v := range src {
		if math.Abs(float64(v)) > math.Abs(float64(most)) {
			most = v
		}
	}
	return most
}

func extremes(src []float32) (lo, hi float32) {
	lo, hi = src[0], src[0]
	for _, v := range src[1:] {
		lo, hi = min(lo, v), max(hi, v)
	}
	return lo, hi
}

// putNibble stores q, which has 4 bits, as value i of a block of 32 values.
func putNibble(quants []byte, i, q int) { quants[i%16] |= byte(q&15) << (i / 16 * 4) }

// quantize32 writes a block of 32 integer codes of four or five bits.
func quantize32(t gguf.Type, dst []byte, src []float32) {
	weights := t.Weights()
	least, most := weights[0], weights[len(weights)-1]
	d, m, quants := float32(0), float32(0), dst[2:]
	if t.HasMins() {
		lo, hi := extremes(src)
		d, m, quants = putHalf(dst, (hi-lo)/float32(most)), putHalf(dst[2:], lo), dst[4:]
	} else {
		d = putHalf(dst, largest(src)/float32(least))
	}
	high, nibbles := uint32(0), quants[len(quants)-16:]
	for i, v := range src {
		q := nearest(v-m, d, int(least), int(most)) - int(least)
		putNibble(nibbles, i, q)
		high |= uint32(q>>4) << i
	}
	if len(quants) > len(nibbles) { // five bits
		binary.LittleEndian.PutUint32(quants, high)
	}
}

func quantizeQ8(dst []byte, src []float32) {
	d := putHalf(dst, float32(math.Abs(float64(largest(src))))/127)
	for i, v := range src {
		dst[2+i] = byte(int8(nearest(v, d, -127, 127)))
	}
}

// subBlocks computes the scales and minima of the 8 sub-blocks of src and writes them to dst, as
// 6-bit multiples of two f16 factors, which precede them. most is the largest quant. It returns
// the scales and minima as stored.
func subBlocks(dst []byte, src []float32, most float32) (scales, minima [8]float32) {
	var topScale, topMin float32
	for i := range 8 {
		lo, hi := extremes(src[32*i : 32*i+32])
		lo = min(lo, 0)
		scales[i], minima[i] = (hi-lo)/most, -lo
		topScale, topMin = max(topScale, scales[i]), max(topMin, minima[i])
	}
	d, dmin := putHalf(dst, topScale/63), putHalf(dst[2:], topMin/63)
	packed := dst[4:16]
	for i := range 8 {
		s, m := byte(nearest(scales[i], d, 0, 63)), byte(nearest(minima[i], dmin, 0, 63))
		scales[i], minima[i] = d*float32(s), dmin*float32(m)
		if i < 4 {
			packed[i] |= s
			packed[i+4] |= m
			continue
		}
		packed[i+4] |= s&15 | m<<4
		packed[i-4] |= s >> 4 << 6
		packed[i] |= m >> 4 << 6
	}
	return scales, minima
}

// quantizeK writes a block of Q4_K or Q5_K, which has one high bit.
func quantizeK(high int, dst []byte, src []float32) {
	most := 16<<high - 1
	scales, minima := subBlocks(dst, src, float32(most))
	highs, quants := dst[16:48], dst[16+32*high:]
	for i, v := range src {
		q := nearest(v+minima[i/32], scales[i/32], 0, most)
		quants[i/64*32+i%32] |= byte(q&15) << (i / 32 % 2 * 4)
		highs[i%32] |= byte(q>>4) << (i / 32)
	}
}

func quantizeQ6K(dst []byte, src []float32) {
	var scales [16]float32
	for i := range scales {
		scales[i] = largest(src[16*i:16*i+16]) / -32
	}
	d := putHalf(dst[208:], largest(scales[:])/-128)
	for i, v := range src {
		s := nearest(scales[i/16], d, -128, 127)
		dst[192+i/16] = byte(int8(s))
		q := nearest(v, d*float32(s), -32, 31) + 32
		part, j := i/128, i%128
		dst[part*64+j%64] |= byte(q&15) << (j / 64 * 4)
		dst[128+part*32+j%32] |= byte(q>>4) << (j / 32 * 2)
	}
}

// closest returns the index of the weight that, multiplied by d, is closest to v; the first one on
// ties.
func closest(weights []int8, v, d float32) int {
	best, least := 0, math.Inf(1)
	for i, w := range weights {
		if off := math.Abs(float64(v - float32(d*float32(w)))); off < least {
			best, least = i, off
		}
	}
	return best
}

func quantizeIQ4NL(dst []byte, src []float32) {
	weights := gguf.IQ4_NL.Weights()
	d := putHalf(dst, largest(src)/float32(weights[0]))
	for i, v := range src {
		putNibble(dst[2:], i, closest(weights, v, d))
	}
}

func quantizeMXFP4(dst []byte, src []float32) {
	top := math.Abs(float64(largest(src)))
	if top > 0 {
		_, exp := math.Frexp(top) // top = f·2^exp, f in [1/2, 1): the largest value of E2M1 is 6, between 2^2 and 2^3
		dst[0] = byte(min(max(exp-1-2+127, 0), 254))
	}
	d, weights := float32(math.Ldexp(1, int(dst[0])-128)), gguf.MXFP4.Weights() // the weights are doubled
	for i, v := range src {
		putNibble(dst[1:], i, closest(weights, v, d))
	}
}
