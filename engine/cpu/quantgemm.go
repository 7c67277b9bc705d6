package cpu

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/coppice-llm/coppice/internal/f32"
)

// quantKernel adds rows of records by columns of a panel to out, or starts it if first is
// not 0; strides are in bytes. head and weights point to those of the first block and
// column.
type quantKernel func(out *float32, outStride int, x *byte, xStride int, head, weights, table *byte, blockBytes, blocks, first int)

// quantTile is one shape of kernels, for each kind of blocks: rows of activations by some
// columns of a panel, for each start in columns.
type quantTile struct {
	rows    int
	columns []int
	byKind  [quantKinds]quantKernel
}

// The kinds of blocks that kernels differ by.
const (
	nibblesHalf = iota // scales are f16
	nibblesHalfMins
	nibblesWide // scales are f32
	nibblesWideMins
	bytesHalf
	bytesHalfMins
	bytesWideMins
	bytesWideTwo // sub-blocks
	quantKinds
)

// kind is which kernels do the format's blocks.
func (f *quantFormat) kind() int {
	for i, is := range [quantKinds]quantFormat{
		nibblesHalf: {subs: 1}, nibblesHalfMins: {subs: 1, mins: true}, nibblesWide: {subs: 1, wide: true}, nibblesWideMins: {subs: 1, wide: true, mins: true},
		bytesHalf: {subs: 1}, bytesHalfMins: {subs: 1, mins: true}, bytesWideMins: {subs: 1, wide: true, mins: true}, bytesWideTwo: {subs: 2, wide: true},
	} {
		if (i < bytesHalf) == (f.table != nil) && f.subs == is.subs && f.wide == is.wide && f.mins == is.mins {
			return i
		}
	}
	panic("cpu: no kernels for " + f.typ.String())
}

// quantBlocks is how many blocks of a panel a tile does before the next rows take their
// turn; see blockK.
const quantBlocks = blockK / quantBlock

// quantPanelProduct writes the columns of one panel of a quantised matrix for the rows
// [lo, hi); x is [row][k/32] records, out [row][m.stride()].
func (k *kernels) quantPanelProduct(out []float32, x []byte, m *matrix, panel, lo, hi int) {
	p, total := &m.quant[panel], m.k/quantBlock
	row, stride := total*recordBytes, m.stride()
	if k.quant == nil {
		p.product(out[lo*stride+panel*vectorCols:], stride, x[lo*row:hi*row], hi-lo)
		return
	}
	block := quantBlocks
	if hi-lo <= 1 {
		block = total
	}
	kind, size := p.format.kind(), p.format.blockBytes()
	for at := 0; at < total; at += block {
		n, first, t := min(block, total-at), 0, 0
		if at == 0 {
			first = 1
		}
		for r := lo; r < hi; r += k.quant[t].rows {
			for k.quant[t].rows > hi-r {
				t++
			}
			tile := &k.quant[t]
			for _, c := range tile.columns {
				head, weights, table := p.at(at, c, k.biased)
				_ = out[(r+tile.rows-1)*stride+panel*vectorCols+vectorCols-1]
				tile.byKind[kind](&out[r*stride+panel*vectorCols+c], 4*stride, &x[r*row+at*recordBytes], row, head, weights, table, size, n, first)
			}
		}
	}
}

// at points to the scales and the weights of a block from column c on, and to the table
// of its nibbles.
func (p *quantPanel) at(block, c int, biased bool) (head, weights, table *byte) {
	f := p.format
	data := p.data[block*f.blockBytes() : (block+1)*f.blockBytes()]
	head, weights, table = &data[c*f.scaleBytes()], &data[f.headBytes()+4*c], &f.biased[0]
	if f.table != nil && !biased {
		table = (*byte)(unsafe.Pointer(&f.table[0]))
	}
	return head, weights, table
}

// product is n rows by the panel, as the sums are defined: the oracle of the vector
// kernels.
func (p *quantPanel) product(out []float32, stride int, x []byte, n int) {
	f, row := p.format, len(x)/n
	for r := range n {
		clear(out[r*stride : r*stride+vectorCols])
	}
	var weights [quantBlock * vectorCols]int8 // [column][k]
	for data, at := p.data, 0; len(data) > 0; data, at = data[f.blockBytes():], at+recordBytes {
		f.unpackBlock(&weights, data[f.headBytes():])
		for r := range n {
			record := x[r*row+at : r*row+at+recordBytes]
			f.addBlock((*[vectorCols]float32)(out[r*stride:]), &weights, data, record)
		}
	}
}

// addBlock adds the product of a block with a record.
func (f *quantFormat) addBlock(out *[vectorCols]float32, weights *[quantBlock * vectorCols]int8, data, record []byte) {
	d, low := recordFloat(record, recordD), recordFloat(record, recordMin)
	q := (*[quantBlock]byte)(record)
	n := quantBlock / f.subs
	for c, acc := range out {
		w := (*[quantBlock]int8)(weights[c*quantBlock:])
		for s := range f.subs {
			sum := int32(0)
			for i := s * n; i < (s+1)*n; i++ {
				sum += int32(w[i]) * int32(int8(q[i]))
			}
			acc = f32.FMA32(float32(sum), float32(f.head(data, s*vectorCols+c)*d), acc)
		}
		if f.mins {
			acc = f32.FMA32(f.head(data, f.subs*vectorCols+c), low, acc)
		}
		out[c] = acc
	}
}

func recordFloat(x []byte, at int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(x[at:]))
}

// head is scale or minimum i of a block.
func (f *quantFormat) head(data []byte, i int) float32 {
	if f.wide {
		return math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return f32.Half(binary.LittleEndian.Uint16(data[2*i:]))
}

// unpackBlock writes the weights of a block by columns.
func (f *quantFormat) unpackBlock(dst *[quantBlock * vectorCols]int8, src []byte) {
	if f.table == nil {
		for i, b := range src[:quantBlock*vectorCols] {
			c, k := i/4%vectorCols, i/4/vectorCols*4+i%4
			dst[c*quantBlock+k] = int8(int(b) - quantBias)
		}
		return
	}
	for i, b := range src[:quantBlock*vectorCols/2] {
		c, k := i/4%vectorCols, i/4/vectorCols*8+i%4
		dst[c*quantBlock+k], dst[c*quantBlock+k+4] = f.table[b&15], f.table[b>>4]
	}
}
