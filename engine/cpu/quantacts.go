package cpu

import (
	"encoding/binary"
	"math"
)

// A quantised row of activations is a run of records, one for each block of 32:
//
//	 0  the whole numbers q, 32 bytes
//	32  d, f32
//	36  float32(Σ q)·d, f32
//	40  Σ q, i32
//	44  Σ q of the first 16, i32
const (
	recordBytes = 48
	recordD     = 32
	recordMin   = 36
	recordSum   = 40
	recordHalf  = 44
)

// leastScale is the least d: below it a block is zero, as what it would add is.
const leastScale = 0x1p-120

// quantizeRow writes the records of a row, whose length is a multiple of 32. A block with a
// value that is not finite has d = NaN, so that its row fails as others do.
func (k *kernels) quantizeRow(dst []byte, row []float32) {
	if k.quantize != nil {
		_ = dst[len(row)/quantBlock*recordBytes-1]
		k.quantize(&dst[0], &row[0], len(row)/quantBlock)
		return
	}
	for ; len(row) > 0; dst, row = dst[recordBytes:], row[quantBlock:] {
		quantizeBlock((*[recordBytes]byte)(dst), (*[quantBlock]float32)(row))
	}
}

func quantizeBlock(dst *[recordBytes]byte, x *[quantBlock]float32) {
	most := uint32(0)
	for _, v := range x {
		most = max(most, math.Float32bits(v)&0x7fffffff)
	}
	*dst = [recordBytes]byte{}
	le := binary.LittleEndian
	if most >= 0xff<<23 {
		nan := math.Float32bits(float32(math.NaN()))
		le.PutUint32(dst[recordD:], nan)
		le.PutUint32(dst[recordMin:], nan)
		return
	}
	d := math.Float32frombits(most) / 127
	if d < leastScale {
		return
	}
	inverse, sum, half := 1/d, int32(0), int32(0)
	for i, v := range x {
		q := toInt(v * inverse)
		dst[i] = byte(q)
		if sum += q; i < quantBlock/2 {
			half = sum
		}
	}
	le.PutUint32(dst[recordD:], math.Float32bits(d))
	le.PutUint32(dst[recordMin:], math.Float32bits(float32(sum)*d))
	le.PutUint32(dst[recordSum:], uint32(sum))
	le.PutUint32(dst[recordHalf:], uint32(half))
}

// toInt is v, of at most 127 and a little, rounded to a whole number of at most 127, ties
// to even: adding 1.5·2^23 leaves no bit for the rest.
func toInt(v float32) int32 {
	const magic = 12582912
	q := int32(math.Float32bits(float32(v+magic))) - int32(math.Float32bits(magic))
	return min(max(q, -127), 127)
}
