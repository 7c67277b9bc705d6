package cpu

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// quantKernel adds the product of rows of records and blocks of a panel to out; if first is not 0 it
// starts from zero instead. Strides are in bytes. panel points to the first of the blocks. more
// points to the table of nibbles or to the f16 that eight blocks share; those blocks begin with the first.
type quantKernel func(out *float32, outStride int, x *byte, xStride int, panel, more *byte, rows, blocks, first int)

// quantKernels holds the kernels of a path for quantised weights.
type quantKernels struct {
	byKind [len(quantKinds)]quantKernel
	// biased is set if kernels read quantFormat.biased as the table of nibbles: VNNI instructions
	// multiply unsigned by signed bytes.
	biased bool
	order  quantOrder // of the panels that kernels read
}

// quantOrder returns the order of the path's panels.
func (k *kernels) quantOrder() quantOrder {
	if k.quant == nil {
		return byBlocks
	}
	return k.quant.order
}

// A kernel unpacks the weights once for all rows, so the more rows, the better. Three limits remain.
const (
	// quantRows is the largest number of rows of one call. Their sums, 256 B each, and their records of
	// one block take 10 KiB and stay in the first-level cache.
	quantRows = 32
	// quantWork is the largest number of rows by blocks of one call. A call can't be preempted; with AVX2
	// it takes some 25 µs. Parts of a panel that several calls read stay in the second-level cache.
	quantWork = 1024
	// strideRows is the largest number of rows whose sums a kernel adds up in the matrix of results. The
	// rows of that are often a multiple of 1 KiB apart, and the first-level cache can't hold many lines
	// at such addresses. The sums of more rows are added up in a tile.
	strideRows = 4
)

// quantPanelProduct computes productTile for quantised weights; x is [row][recordStride(k)] bytes.
func (k *kernels) quantPanelProduct(w *scratch, out []float32, stride int, x []byte, m *matrix, panel, lo, hi int) {
	p, row, rows := &m.quant[panel], recordStride(m.k), hi-lo
	x = x[lo*row : hi*row]
	if k.quant == nil {
		p.product(out, stride, x, rows)
		return
	}
	if stride != vectorCols && rows > strideRows {
		tile := w.tile[:rows*vectorCols]
		k.quantProduct(tile, vectorCols, x, p, rows, m.k/quantBlock)
		for r := range rows {
			copy(out[r*stride:][:vectorCols], tile[r*vectorCols:])
		}
		return
	}
	k.quantProduct(out, stride, x, p, rows, m.k/quantBlock)
}

// quantProduct multiplies rows of records x by all blocks of a panel.
func (k *kernels) quantProduct(out []float32, stride int, x []byte, p *quantPanel, rows, blocks int) {
	row, kernel := len(x)/rows, k.quant.byKind[p.format.kind]
	_ = out[(rows-1)*stride+vectorCols-1]
	part := quantWork / min(rows, quantRows) / superBlocks * superBlocks
	for at, first := 0, 1; at < blocks; at, first = at+part, 0 {
		n := min(part, blocks-at)
		panel, more := p.at(at, k.quant.biased)
		for r := 0; r < rows; r += quantRows {
			kernel(&out[r*stride], 4*stride, &x[r*row+at*recordBytes], row, panel, more, min(quantRows, rows-r), n, first)
		}
	}
}

// at returns the pointers that a kernel needs to start at the given block, a multiple of superBlocks: to
// the block, and to the table of nibbles or the f16 shared with other blocks. biased selects the table
// whose values are stored plus 128.
func (p *quantPanel) at(block int, biased bool) (data, more *byte) {
	f := p.format
	data = &p.data[block*f.blockBytes()]
	switch {
	case f.scales == factors:
		return data, &p.supers[block/superBlocks*f.superBytes()]
	case biased:
		return data, &f.biased[0]
	}
	return data, (*byte)(unsafe.Pointer(&f.values[0]))
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

// recordStride returns the distance in bytes between rows of records over k: an odd number of cache lines.
// All rows' records of one block then lie in different sets of a cache, for each k.
func recordStride(k int) int {
	const line = 64
	return (k/quantBlock*recordBytes+line-1)/line*line | line
}

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
