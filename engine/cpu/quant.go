package cpu

import (
	"encoding/binary"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/gguf"
)

// Products with quantised weights. A row of activations is quantised once, in blocks of 32:
// x ≈ d·q with d = max|x|/127 and an integer q from -127 to 127. A weight is s·w+m with an
// integer w (package gguf, Block). Within a block the products w·q are summed as integers.
// That is exact, so neither the width nor the order of instructions affects the result. An
// element of the result is a chain of fused multiply-adds over ascending blocks, for each
// sub-block
//
//	out ← fma(float32(Σ w·q), s·d, out)
//
// followed, where the type has minima, by out ← fma(m, float32(Σ q)·d, out). s·d and
// float32(Σ q)·d are rounded to f32 first. A sum of 32 products of at most 128·127 is below
// 2^19, so its conversion to float32 is exact.
const quantBlock = 32

// quantFormat describes how panels store the blocks of a type. A panel has [k/32] blocks of 64
// columns. A block holds scales [subs][64], minima [64] if the type has them, then weights with
// four k (a quad) of a column adjacent, [k/4][64][4]. Weights are bytes, or nibbles: quads
// 2j in the low halves of bytes and 2j+1 in the high halves. Weights of five or six bits are
// nibbles followed by planes [64][4] of the bits above them. A byte of a plane holds, lowest
// first, one bit of each of eight quads, or two bits of each of four.
//
// Where scales and minima are factors, they are bytes that multiply an f16 shared by eight
// blocks. The panel then starts with those f16, for each eight blocks: of the scales [64] and
// of the minima [64].
//
// Some paths have panels in another order, see quantOrder.
type quantFormat struct {
	typ gguf.Type
	quantKind
	kind   int       // index into quantKinds
	values [64]int8  // weight of each code: of a nibble, or of a nibble and high bits
	codes  [256]byte // lowest code of each weight; the index is the weight as a byte
	// biased holds the first values plus 128, for instructions that need one unsigned factor.
	biased [16]byte
	// pairs holds, for a byte of two nibbles, the value of the lower one and, from bit 16 on, that of
	// the upper one, each plus half the range of bits().
	pairs [256]uint32
}

// scaling is the storage type of scales and minima.
type scaling int

const (
	halves  scaling = iota // f16, as in the file
	floats                 // f32
	factors                // bytes that multiply an f16 shared by superBlocks blocks
)

// packing is the storage of weights.
type packing int

const (
	asBytes packing = iota
	asNibbles
	byTable // nibbles are indices into a table
)

// superBlocks is the number of blocks that share the f16 of their factors.
const superBlocks = 8

// quantBias is added to a signed weight to store it as an unsigned byte.
const quantBias = 128

// quantKind is a layout of blocks. Each has its own kernels.
type quantKind struct {
	packed packing
	high   int // bits of a weight above its nibble: 0, 1 or 2
	added  int // offset of stored weights, unless they come from a table
	subs   int // sub-blocks of a block, each with its own scale: 1 or 2
	scales scaling
	mins   bool
}

// The kinds, as indices into quantKinds and quantKernels.byKind.
const (
	nibblesHalf = iota
	nibblesHalfMins
	nibblesFactorsMins
	tableHalf
	tableFloat
	bytesHalf
	fiveHalf
	fiveHalfMins
	fiveFactorsMins
	sixFactorsTwo // two sub-blocks
)

var quantKinds = [...]quantKind{
	nibblesHalf:        {packed: asNibbles, added: 8, subs: 1},
	nibblesHalfMins:    {packed: asNibbles, subs: 1, mins: true},
	nibblesFactorsMins: {packed: asNibbles, subs: 1, mins: true, scales: factors},
	tableHalf:          {packed: byTable, subs: 1},
	tableFloat:         {packed: byTable, subs: 1, scales: floats},
	bytesHalf:          {added: quantBias, subs: 1},
	fiveHalf:           {packed: asNibbles, high: 1, added: 16, subs: 1},
	fiveHalfMins:       {packed: asNibbles, high: 1, subs: 1, mins: true},
	fiveFactorsMins:    {packed: asNibbles, high: 1, subs: 1, mins: true, scales: factors},
	sixFactorsTwo:      {packed: asNibbles, high: 2, added: 32, subs: 2, scales: factors},
}

var formats = makeFormats()

// makeFormats returns the formats of the GGUF types that are multiplied in integers.
func makeFormats() map[gguf.Type]*quantFormat {
	out := map[gguf.Type]*quantFormat{}
	for typ, kind := range map[gguf.Type]int{
		gguf.Q4_0: nibblesHalf, gguf.Q4_1: nibblesHalfMins, gguf.Q4_K: nibblesFactorsMins, gguf.IQ4_NL: tableHalf, gguf.MXFP4: tableFloat,
		gguf.Q5_0: fiveHalf, gguf.Q5_1: fiveHalfMins, gguf.Q5_K: fiveFactorsMins, gguf.Q6_K: sixFactorsTwo, gguf.Q8_0: bytesHalf,
	} {
		f := &quantFormat{typ: typ, quantKind: quantKinds[kind], kind: kind}
		for i := range f.values {
			f.values[i] = int8(i - f.added)
		}
		copy(f.values[:], typ.Weights())
		for i := 16<<f.high - 1; i >= 0; i-- {
			f.codes[byte(f.values[i])] = byte(i)
		}
		for i := range f.biased {
			f.biased[i] = byte(int(f.values[i]) + quantBias)
		}
		for i := range f.pairs {
			centre := 1 << (f.bits() - 1)
			f.pairs[i] = uint32(int(f.values[i&15])+centre) | uint32(int(f.values[i>>4])+centre)<<16
		}
		out[typ] = f
	}
	return out
}

// bits returns the number of bits of an unpacked weight. The values of MXFP4 are from -12 to 12.
func (f *quantFormat) bits() int {
	switch {
	case f.packed == asNibbles:
		return 4 + f.high
	case f.typ == gguf.MXFP4:
		return 5
	}
	return 8
}

// panelBytes is the size of a panel over k.
func (f *quantFormat) panelBytes(k int) int {
	return k/quantBlock*f.blockBytes() + k/(superBlocks*quantBlock)*f.superBytes()
}

// superBytes is the size of the f16 that eight blocks of a panel share: 64 columns of scales
// and, if the type has them, 64 of minima.
func (f *quantFormat) superBytes() int {
	switch {
	case f.scales != factors:
		return 0
	case f.mins:
		return 2 * 2 * vectorCols
	}
	return 2 * vectorCols
}

// blockBytes is the size of one block of a panel. For Q4_0 it is 64·2 + 64·16 = 1152 bytes, for
// Q6_K 64·2 + 64·16 + 64·8 = 1664.
func (f *quantFormat) blockBytes() int {
	if f.packed == asBytes {
		return f.headBytes() + vectorCols*quantBlock
	}
	return f.headBytes() + vectorCols*quantBlock*(4+f.high)/8
}

// headBytes is the size of the scales and minima of one block of a panel.
func (f *quantFormat) headBytes() int {
	n := f.subs
	if f.mins {
		n++
	}
	return n * vectorCols * f.scaleBytes()
}

// scaleBytes is the size of one scale or minimum.
func (f *quantFormat) scaleBytes() int { return [...]int{halves: 2, floats: 4, factors: 1}[f.scales] }

// quantOrder is the order in which a path reads panels.
type quantOrder int

const (
	// byBlocks is the order that quantFormat describes.
	byBlocks quantOrder = iota
	// byGroups is the order of kernels that multiply eight columns by all rows before they go on to the next
	// eight. Of each superBlocks blocks (the last ones may be fewer) it has first those of columns
	// [0, 8), then those of [8, 16) and so on. So such a kernel reads one stream. Bytes are signed: they
	// have no offset.
	byGroups
)

// columns returns the number of columns whose scales, and whose weights of a quad, are adjacent.
func (o quantOrder) columns() int {
	if o == byGroups {
		return 8
	}
	return vectorCols
}

// quantPanel is one panel of a quantised matrix.
type quantPanel struct {
	format *quantFormat
	order  quantOrder
	supers []byte // [k/256] of superBytes; empty unless scales are factors
	data   []byte // [k/32] of blockBytes
}

// newQuantPanel returns a panel of format f over k that is stored in mem, whose length is
// panelBytes(k).
func newQuantPanel(f *quantFormat, order quantOrder, k int, mem []byte) quantPanel {
	n := k / (superBlocks * quantBlock) * f.superBytes()
	return quantPanel{f, order, mem[:n:n], mem[n:]}
}

// place returns the offsets in p.data of the first scale of column c in block n, and of its first quad.
// Further scales and minima are columns()·scaleBytes apart, and further quads, which the planes follow,
// 4·columns().
func (p *quantPanel) place(c, n int) (head, weights int) {
	f, cols, size := p.format, p.order.columns(), p.format.blockBytes()
	first := n / superBlocks * superBlocks
	blocks := min(superBlocks, len(p.data)/size-first)
	at := first*size + (c/cols*blocks+n-first)*(size*cols/vectorCols)
	return at + c%cols*f.scaleBytes(), at + f.headBytes()*cols/vectorCols + c%cols*4
}

// reordered returns a copy of p in another order.
func (p *quantPanel) reordered(order quantOrder) quantPanel {
	f, cols, old := p.format, order.columns(), p.order.columns()
	to := quantPanel{f, order, p.supers, make([]byte, len(p.data))}
	for n := range len(p.data) / f.blockBytes() {
		for c := range vectorCols {
			head, weights := to.place(c, n)
			oldHead, oldWeights := p.place(c, n)
			for i, size := 0, f.scaleBytes(); i < f.headBytes()/(vectorCols*size); i++ {
				copy(to.data[head+i*cols*size:][:size], p.data[oldHead+i*old*size:])
			}
			for i := range (f.blockBytes() - f.headBytes()) / (4 * vectorCols) {
				quad := binary.LittleEndian.Uint32(p.data[oldWeights+4*i*old:])
				if f.packed == asBytes && order != p.order {
					quad ^= signBits
				}
				binary.LittleEndian.PutUint32(to.data[weights+4*i*cols:], quad)
			}
		}
	}
	return to
}

// signBits has the highest bit of each byte. Flipping it in a byte adds quantBias or takes it away.
const signBits = 0x80808080

// quantFormats returns the format of each panel of stacked tensors. It returns nil if they
// can't be multiplied in integers: a tensor is not quantised, k is no multiple of 32, or a
// panel would hold columns of two types.
func quantFormats(k int, tensors []*model.Tensor) []*quantFormat {
	var panels []*quantFormat
	rows := 0
	for _, t := range tensors {
		f := formats[t.Quant]
		if f == nil || k%quantBlock != 0 {
			return nil
		}
		if rows%vectorCols != 0 && panels[len(panels)-1] != f {
			return nil
		}
		rows += t.Shape[0]
		for len(panels)*vectorCols < rows {
			panels = append(panels, f)
		}
	}
	return panels
}

// packQuant packs stacked tensors; formats holds the format of each panel, as quantFormats
// returns it. It fails if there is no memory.
func packQuant(m *matrix, order quantOrder, formats []*quantFormat, tensors []*model.Tensor) error {
	m.cols, m.quant = vectorCols, make([]quantPanel, len(formats))
	size := 0
	for _, f := range formats {
		size += f.panelBytes(m.k)
	}
	store, err := reserve((size + 3) / 4)
	if err != nil {
		return err
	}
	m.store = store
	floats := store.F32()
	data := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(floats))), 4*len(floats))
	for i, f := range formats {
		n := f.panelBytes(m.k)
		m.quant[i] = newQuantPanel(f, order, m.k, data[:n:n])
		data = data[n:]
	}
	rows := make([][]byte, 0, m.n)
	for t, r := range m.columns(tensors) {
		row := len(t.Data) / t.Shape[0]
		rows = append(rows, t.Data[r*row:(r+1)*row])
	}
	setPanels(m.quant, rows)
	return nil
}

// setPanels stores rows, the rows of the tensors, as columns of the panels: 64 rows in each panel.
// It uses all processors, because this is most of the time of opening a model.
func setPanels(panels []quantPanel, rows [][]byte) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(panels)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(panels) {
					return
				}
				for c, row := range rows[i*vectorCols : min((i+1)*vectorCols, len(rows))] {
					panels[i].setColumn(c, row)
				}
			}
		})
	}
	wg.Wait()
}

// setColumn stores a row of a tensor as column c. Columns past the last are never set: their
// scales stay zero, and so do their products.
func (p *quantPanel) setColumn(c int, row []byte) {
	f := p.format
	var b gguf.Block
	blocks, size := 0, f.typ.BlockBytes()
	for ; len(row) > 0; row = row[size:] {
		gguf.Unpack(f.typ, &b, row[:size])
		for i := range f.typ.BlockValues() / quantBlock {
			p.setBlock(c, blocks, i, &b, row)
			blocks++
		}
	}
}

// setBlock stores values [32i, 32i+32) of b, a block of the file, as block n of column c. raw
// holds the same block as bytes; it starts with scale and minimum if these are f16.
func (p *quantPanel) setBlock(c, n, i int, b *gguf.Block, raw []byte) {
	f := p.format
	head, at := p.place(c, n)
	p.setHead(p.data[head:], c, n, i, b, raw)
	weights, distance, quants := p.data[at:], 4*p.order.columns(), b.Quants[quantBlock*i:quantBlock*(i+1)]
	put := func(i int, bits uint32) { binary.LittleEndian.PutUint32(weights[distance*i:], bits) }
	var signs uint32
	if p.order == byGroups {
		signs = signBits
	}
	const each = 0x01010101
	mask, planes := uint32(1<<f.high-1)*each, [2]uint32{}
	for pair := range quantBlock / 8 {
		codes := f.code(quants[8*pair:])
		low, high := uint32(codes), uint32(codes>>32)
		if f.packed == asBytes {
			put(2*pair, low^signs)
			put(2*pair+1, high^signs)
			continue
		}
		put(pair, low&(15*each)|high&(15*each)<<4)
		if f.high > 0 {
			at := 2 * pair * f.high
			planes[at/8&1] |= (low>>4&mask | high>>4&mask<<(f.high&31)) << (at % 8 & 31)
		}
	}
	for i, bits := range planes[:f.high] {
		put(quantBlock/8+i, bits)
	}
}

// code returns eight weights as they are stored, one in each byte: the weight plus f.added, or its
// index in the table.
func (f *quantFormat) code(q []int8) uint64 {
	_ = q[7]
	if f.packed == byTable {
		codes := uint64(0)
		for i, v := range q[:8] {
			codes |= uint64(f.codes[byte(v)]) << (8 * i)
		}
		return codes
	}
	bytes := uint64(byte(q[0])) | uint64(byte(q[1]))<<8 | uint64(byte(q[2]))<<16 | uint64(byte(q[3]))<<24 |
		uint64(byte(q[4]))<<32 | uint64(byte(q[5]))<<40 | uint64(byte(q[6]))<<48 | uint64(byte(q[7]))<<56
	const each = 0x0101010101010101
	return bytes&(0x7f*each) + uint64(f.added)*each ^ bytes&(0x80*each) // eight sums without carries
}

// setHead stores the scales and the minimum of a block, from dst on; the other arguments are those of
// setBlock.
func (p *quantPanel) setHead(dst []byte, c, n, i int, b *gguf.Block, raw []byte) {
	f, cols := p.format, p.order.columns()
	switch f.scales {
	case halves:
		copy(dst, raw[:2])
		if f.mins {
			copy(dst[2*cols:], raw[2:4])
		}
	case floats:
		binary.LittleEndian.PutUint32(dst, math.Float32bits(b.Scales[i]))
	case factors:
		for s := range f.subs {
			dst[s*cols] = b.Factors[i*f.subs+s]
		}
		super := p.supers[n/superBlocks*f.superBytes():]
		binary.LittleEndian.PutUint16(super[2*c:], b.Super)
		if f.mins {
			dst[f.subs*cols] = b.MinFactors[i]
			binary.LittleEndian.PutUint16(super[2*(vectorCols+c):], b.SuperMin^0x8000)
		}
	}
}
