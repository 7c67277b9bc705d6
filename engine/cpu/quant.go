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

// Products with quantised weights. A row of activations is quantised once, in blocks
// of 32: x ≈ d·q, d = max|x|/127, q a whole number from -127 to 127. A weight is s·w+m
// with a whole number w (package gguf, Block). Of each block the products w·q are
// summed as integers, which is exact, so that neither width nor order of instructions
// shows; an element of the result is a chain of fused multiply-adds over ascending
// blocks, for each sub-block
//
//	out ← fma(float32(Σ w·q), s·d, out)
//
// and after it, where the type has minima, out ← fma(m, float32(Σ q)·d, out), s·d and
// float32(Σ q)·d being rounded before. No sum reaches 2^24, so float32 is exact.
const quantBlock = 32

// quantFormat is how panels hold the blocks of a type. A panel has [k/32] blocks of 64
// columns: scales [subs][64], minima [64] if there are some, then the weights, four k of
// a column side by side, [k/4][64][4]: as bytes, plus 128, or as nibbles, k/4 = 2j in the
// low halves of bytes and 2j+1 in the high ones. Nibbles are the whole numbers, plus
// added, or stand for entries of a table. Where scales and minima are factors, eight
// blocks multiply theirs by the same f16: before the blocks, a panel has for each eight
// those of scales [64] and of minima [64].
type quantFormat struct {
	typ    gguf.Type
	subs   int // sub-blocks with scales of their own: 1 or 2
	scales scaling
	mins   bool
	packed packing
	added  int // to weights as they are stored; 128 where a table or bytes hold them
	table  [16]int8
	// The table plus 128, for instructions that want one factor unsigned.
	biased [16]byte
	nibble [256]byte // by number: the first nibble that stands for it
}

// scaling is how scales and minima are stored.
type scaling int

const (
	halves  scaling = iota // f16, as the file has them
	floats                 // f32
	factors                // bytes, of an f16 that superBlocks share
)

// packing is how weights are stored.
type packing int

const (
	asBytes packing = iota
	asNibbles
	byTable
)

// superBlocks share the f16 that their factors multiply.
const superBlocks = 8

// quantBias makes weights unsigned.
const quantBias = 128

var formats = makeFormats()

func makeFormats() map[gguf.Type]*quantFormat {
	var low, centred [16]int8
	for i := range low {
		low[i], centred[i] = int8(i), int8(i)-8
	}
	codebook := [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	e2m1 := [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
	out := map[gguf.Type]*quantFormat{}
	for _, f := range []quantFormat{
		{typ: gguf.Q4_0, subs: 1, packed: asNibbles, added: 8, table: centred},
		{typ: gguf.Q4_1, subs: 1, packed: asNibbles, table: low, mins: true},
		{typ: gguf.Q4_K, subs: 1, packed: asNibbles, table: low, mins: true, scales: factors},
		{typ: gguf.IQ4_NL, subs: 1, packed: byTable, added: quantBias, table: codebook},
		{typ: gguf.MXFP4, subs: 1, packed: byTable, added: quantBias, table: e2m1, scales: floats},
		{typ: gguf.Q5_0, subs: 1, added: quantBias},
		{typ: gguf.Q5_1, subs: 1, added: quantBias, mins: true},
		{typ: gguf.Q5_K, subs: 1, added: quantBias, mins: true, scales: factors},
		{typ: gguf.Q6_K, subs: 2, added: quantBias, scales: factors},
		{typ: gguf.Q8_0, subs: 1, added: quantBias},
	} {
		if f.packed != asBytes {
			for i := len(f.table) - 1; i >= 0; i-- {
				f.biased[i] = byte(int(f.table[i]) + quantBias)
				f.nibble[byte(f.table[i])] = byte(i)
			}
		}
		out[f.typ] = &f
	}
	return out
}

// scaleBytes is the size of a scale or a minimum.
func (f *quantFormat) scaleBytes() int { return [...]int{halves: 2, floats: 4, factors: 1}[f.scales] }

// superBytes is what a panel has for eight blocks beside these.
func (f *quantFormat) superBytes() int {
	switch {
	case f.scales != factors:
		return 0
	case f.mins:
		return 2 * 2 * vectorCols
	}
	return 2 * vectorCols
}

// panelBytes is what a panel takes whose rows have k values.
func (f *quantFormat) panelBytes(k int) int {
	return k/quantBlock*f.blockBytes() + k/(superBlocks*quantBlock)*f.superBytes()
}

// headBytes is what scales and minima of one block of a panel take.
func (f *quantFormat) headBytes() int {
	n := f.subs
	if f.mins {
		n++
	}
	return n * vectorCols * f.scaleBytes()
}

// blockBytes is what one block of a panel takes.
func (f *quantFormat) blockBytes() int {
	if f.packed != asBytes {
		return f.headBytes() + vectorCols*quantBlock/2
	}
	return f.headBytes() + vectorCols*quantBlock
}

// quantPanel is one panel of a quantised matrix.
type quantPanel struct {
	format *quantFormat
	supers []byte // [k/256], what eight blocks share
	data   []byte // [k/32] blocks
}

// newQuantPanel cuts mem, which is panelBytes long.
func newQuantPanel(f *quantFormat, k int, mem []byte) quantPanel {
	n := k / (superBlocks * quantBlock) * f.superBytes()
	return quantPanel{f, mem[:n:n], mem[n:]}
}

// quantFormats are the formats of the panels of stacked tensors, nil if they can't be
// multiplied as they are: where a tensor is not quantised, or where panels would hold
// columns of two types.
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

// packQuant packs stacked tensors whose panels have those formats.
func packQuant(m *matrix, formats []*quantFormat, tensors []*model.Tensor) error {
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
		m.quant[i] = newQuantPanel(f, m.k, data[:n:n])
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

// setPanels stores the rows as columns of the panels, which it shares out to all processors: it
// is most of what opening a model takes.
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

// setColumn stores a row of a tensor as column c. What is not stored is zero: scales of
// columns past the last one are, so that these are zero too.
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

// setBlock stores part i, of 32 values, of a column's block as block n of the panel. raw
// begins with the block's scale and minimum if these are f16.
func (p *quantPanel) setBlock(c, n, i int, b *gguf.Block, raw []byte) {
	f := p.format
	dst := p.data[n*f.blockBytes() : (n+1)*f.blockBytes()]
	p.setHead(c, n, i, b, raw)
	weights, quants := dst[f.headBytes():], b.Quants[quantBlock*i:quantBlock*(i+1)]
	if f.packed == asBytes {
		for quad := range quantBlock / 4 {
			to := weights[(quad*vectorCols+c)*4:][:4]
			for j, q := range quants[4*quad : 4*quad+4] {
				to[j] = byte(int(q) + quantBias)
			}
		}
		return
	}
	for pair := range quantBlock / 8 {
		to, low, high := weights[(pair*vectorCols+c)*4:][:4], quants[8*pair:8*pair+4], quants[8*pair+4:8*pair+8]
		for j := range to {
			to[j] = f.nibble[byte(low[j])] | f.nibble[byte(high[j])]<<4
		}
	}
}

// setHead stores scales and minimum of a block, as setBlock does.
func (p *quantPanel) setHead(c, n, i int, b *gguf.Block, raw []byte) {
	f := p.format
	dst := p.data[n*f.blockBytes():]
	switch f.scales {
	case halves:
		copy(dst[2*c:], raw[:2])
		if f.mins {
			copy(dst[2*(vectorCols+c):], raw[2:4])
		}
	case floats:
		binary.LittleEndian.PutUint32(dst[4*c:], math.Float32bits(b.Scales[i]))
	case factors:
		for s := range f.subs {
			dst[s*vectorCols+c] = b.Factors[i*f.subs+s]
		}
		super := p.supers[n/superBlocks*f.superBytes():]
		binary.LittleEndian.PutUint16(super[2*c:], b.Super)
		if f.mins {
			dst[f.subs*vectorCols+c] = b.MinFactors[i]
			binary.LittleEndian.PutUint16(super[2*(vectorCols+c):], b.SuperMin^0x8000)
		}
	}
}
