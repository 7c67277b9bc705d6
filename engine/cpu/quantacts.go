package cpu

import (
	"encoding/binary"
	"math"
)

// A quantised row of activations is a sequence of records, one for each block of 32. Offset
// and field:
//
//	 0  q, 32 signed bytes
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

// leastScale is the smallest d that is stored. A block with a smaller one becomes zero: what it
// adds to a sum is too small to matter, and 1/d must stay finite.
const leastScale = 0x1p-120

// quantizeRow writes the records of a row; len(row) is a multiple of 32. A block with an
// infinity or a NaN gets d = NaN, so that its logits are NaN and the row fails, as it would in
// floats.
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

// quantizeBlock writes the record of one block. It is the definition of the records, which the
// vector kernels repeat bit for bit.
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
		q := toInt(float32(v * inverse)) // the conversion keeps the compiler from fusing product and sum
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

// toInt rounds v to the nearest integer, ties to even, and clamps it to [-127, 127]; |v| is
// hardly above 127. Adding 1.5·2^23 = 12582912 rounds, because f32 values of that size are
// integers.
func toInt(v float32) int32 {
	const magic = 12582912
	q := int32(math.Float32bits(float32(v+magic))) - int32(math.Float32bits(magic))
	return min(max(q, -127), 127)
}
