package cpu

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// quantKernel adds the product of rows of records and columns of a panel to out; if first is
// not 0 it starts from zero instead. Strides and steps are in bytes. head and weights point to
// the scales and the weights of the first block, from the first column on; the next block's
// are headStep and weightStep further on. more points to the table of nibbles or to the f16
// that eight blocks share.
type quantKernel func(out *float32, outStride int, x *byte, xStride int, head, weights, more *byte, headStep, weightStep, blocks, first int)

// quantKernels holds the kernels of a path for quantised weights.
type quantKernels struct {
	tiles []quantTile // most rows first, the last has one
	// biased is set if kernels read quantFormat.biased as the table of nibbles: VNNI instructions
	// multiply unsigned by signed bytes.
	biased bool
	expand [2]expansion // of weights with one and with two high bits
}

// expansion writes the weights of some blocks as bytes, [blocks][expandedBytes]. The blocks in src
// are step bytes apart.
type expansion func(dst, src *byte, step, blocks int)

// quantTile holds the kernels of one shape, one for each kind of blocks: rows of activations by
// part of a panel's columns. A kernel is called once for each first column in columns.
type quantTile struct {
	rows    int
	columns []int
	byKind  [len(quantKinds)]quantKernel
}

// quantBlocks is the largest number of blocks of a panel that a tile computes before the next rows
// are multiplied by the same blocks; blockK is the same limit for float weights. Eight blocks with
// weights of one byte take about 8·(2+32)·64 B = 17 KiB, which stay in the first-level cache.
const quantBlocks = 8

// expandedBytes is the size of a block's weights as bytes.
const expandedBytes = quantBlock * vectorCols

// quantPanelProduct computes productTile for quantised weights; x is [row][k/32] records. If
// several rows read weights with high bits, these are expanded to bytes in w once for all rows.
func (k *kernels) quantPanelProduct(w *scratch, out []float32, stride int, x []byte, m *matrix, panel, lo, hi int) {
	p, total := &m.quant[panel], m.k/quantBlock
	row := total * recordBytes
	if k.quant == nil {
		p.product(out, stride, x[lo*row:hi*row], hi-lo)
		return
	}
	block, kind, size := quantBlocks, p.format.kind, p.format.blockBytes()
	weightStep, expand := size, p.format.high > 0 && hi-lo > 1
	if expand {
		kind, weightStep = p.format.expanded, expandedBytes
	}
	if hi-lo <= 1 {
		block = total
	}
	for at := 0; at < total; at += block {
		n, first, t := min(block, total-at), 0, 0
		if at == 0 {
			first = 1
		}
		if expand {
			_, weights, _ := p.at(at, 0, k.quant.biased)
			k.quant.expand[p.format.high-1](&w.weights[0], weights, size, n)
		}
		for r := lo; r < hi; r += k.quant.tiles[t].rows {
			for k.quant.tiles[t].rows > hi-r {
				t++
			}
			tile := &k.quant.tiles[t]
			for _, c := range tile.columns {
				head, weights, more := p.at(at, c, k.quant.biased)
				if expand {
					weights = &w.weights[4*c]
				}
				_ = out[(r-lo+tile.rows-1)*stride+vectorCols-1]
				tile.byKind[kind](&out[(r-lo)*stride+c], 4*stride, &x[r*row+at*recordBytes], row, head, weights, more, size, weightStep, n, first)
			}
		}
	}
}

// at returns the pointers that a kernel needs to start at column c of the given block: to the
// scales, to the weights, and to the table of nibbles or the f16 shared with other blocks. biased
// selects the table whose values are stored plus 128.
func (p *quantPanel) at(block, c int, biased bool) (head, weights, more *byte) {
	f := p.format
	data := p.data[block*f.blockBytes() : (block+1)*f.blockBytes()]
	head, weights = &data[c*f.scaleBytes()], &data[f.headBytes()+4*c]
	switch {
	case f.scales == factors:
		more = &p.supers[block/superBlocks*f.superBytes()+2*c]
	case biased:
		more = &f.biased[0]
	default:
		more = (*byte)(unsafe.Pointer(&f.values[0]))
	}
	return head, weights, more
}

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
