package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/coppice-llm/coppice/internal/f32"
)

// TestExtremeProducts multiplies the smallest and the largest stored weights by activations of ±127,
// the largest sums that words and instructions of 16 bits must hold, and mixes of these.
func TestExtremeProducts(t *testing.T) {
	const k = superBlocks * quantBlock
	var rows [][]float32
	for _, sign := range []func(i int) bool{
		func(int) bool { return false }, func(int) bool { return true }, func(i int) bool { return i%2 == 0 },
		func(i int) bool { return i/2%2 == 0 }, func(i int) bool { return i/4%2 == 0 }, func(i int) bool { return i/16%2 == 0 },
	} {
		row := make([]float32, k)
		for i := range row {
			row[i] = 1
			if sign(i) {
				row[i] = -1
			}
		}
		rows = append(rows, row)
	}
	for _, typ := range quantTypes() {
		f := formats[typ]
		for _, fill := range [][]byte{{0}, {0xff}, {0, 0xff}, {0xff, 0, 0, 0xff}, {0xf0, 0x0f}, {0x80, 0x7f}, {0x88, 0x77, 0x08}} {
			p := newQuantPanel(f, byBlocks, k, make([]byte, f.panelBytes(k)))
			for i := range p.data {
				p.data[i] = fill[i%len(fill)]
			}
			for i := range len(p.supers) / 2 {
				binary.LittleEndian.PutUint16(p.supers[2*i:], f32.ToF16(0.5))
			}
			for b := range k / quantBlock {
				head := p.data[b*f.blockBytes():][:f.headBytes()]
				for i := range len(head) / f.scaleBytes() {
					switch f.scales {
					case halves:
						binary.LittleEndian.PutUint16(head[2*i:], f32.ToF16(0.75))
					case floats:
						binary.LittleEndian.PutUint32(head[4*i:], math.Float32bits(0.75))
					}
				}
			}
			for _, isa := range ISAs() {
				ops := kernelsOf(isa)
				m := &matrix{n: vectorCols, k: k, cols: vectorCols, quant: []quantPanel{p.reordered(ops.quantOrder())}}
				a := newActs(ops, len(rows), k, true, true)
				for r, row := range rows {
					a.set(r, row)
				}
				got, want := make([]float32, len(rows)*vectorCols), make([]float32, len(rows)*vectorCols)
				p.plainProduct(want, vectorCols, a.records, len(rows))
				for _, each := range []int{1, len(rows)} {
					for lo := 0; lo < len(rows); lo += each {
						ops.quantPanelProduct(newScratch(), got[lo*vectorCols:], vectorCols, a.records, m, 0, lo, lo+each)
					}
					if what := fmt.Sprintf("%v of %x on %s, %d rows at once", typ, fill, isa, each); !sameRows(t, what, got, want) {
						break
					}
				}
			}
		}
	}
}

func sameRows(t *testing.T, what string, got, want []float32) bool {
	t.Helper()
	for i, v := range want {
		if math.Float32bits(got[i]) != math.Float32bits(v) {
			t.Errorf("%s: row %d, column %d is %v, want %v", what, i/vectorCols, i%vectorCols, got[i], v)
			return false
		}
	}
	return true
}

// plainProduct is product directly from the definition in quant.go.
func (p *quantPanel) plainProduct(out []float32, stride int, x []byte, n int) {
	f, row := p.format, len(x)/n
	for r := range n {
		clear(out[r*stride : r*stride+vectorCols])
	}
	var weights [quantBlock * vectorCols]int8 // [column][k]
	for b := range len(p.data) / f.blockBytes() {
		f.unpackBlock(&weights, p.data[b*f.blockBytes()+f.headBytes():])
		for r := range n {
			record := x[r*row+b*recordBytes:][:recordBytes]
			p.addBlock((*[vectorCols]float32)(out[r*stride:]), &weights, b, record)
		}
	}
}

// addBlock adds the product of block b and a record to all columns of out.
func (p *quantPanel) addBlock(out *[vectorCols]float32, weights *[quantBlock * vectorCols]int8, b int, record []byte) {
	f := p.format
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
			acc = f32.FMA32(float32(sum), float32(p.head(b, s, c)*d), acc)
		}
		if f.mins {
			acc = f32.FMA32(p.head(b, f.subs, c), low, acc)
		}
		out[c] = acc
	}
}

// head returns scale i, or for i = subs the minimum, of column c in block b.
func (p *quantPanel) head(b, i, c int) float32 {
	f, at := p.format, i*vectorCols+c
	data := p.data[b*f.blockBytes():]
	switch f.scales {
	case halves:
		return f32.FromF16(binary.LittleEndian.Uint16(data[2*at:]))
	case floats:
		return math.Float32frombits(binary.LittleEndian.Uint32(data[4*at:]))
	}
	of, factor := p.supers[b/superBlocks*f.superBytes()+2*c:], float32(data[at])
	if i == f.subs {
		of = of[2*vectorCols:]
	} else if !f.mins {
		factor = float32(int8(data[at]))
	}
	return f32.FromF16(binary.LittleEndian.Uint16(of)) * factor // exact: 11 bits by 8
}

// unpackBlock writes the weights of a block as [column][32].
func (f *quantFormat) unpackBlock(dst *[quantBlock * vectorCols]int8, src []byte) {
	if f.packed == asBytes {
		for i, b := range src[:quantBlock*vectorCols] {
			c, k := i/4%vectorCols, i/4/vectorCols*4+i%4
			dst[c*quantBlock+k] = int8(int(b) - f.added)
		}
		return
	}
	nibbles, planes := src[:quantBlock*vectorCols/2], src[quantBlock*vectorCols/2:]
	for i, b := range nibbles {
		column, pair := i%(4*vectorCols), i/(4*vectorCols)
		low, high := b&15, b>>4
		if f.high > 0 {
			at := 2 * pair * f.high // of the bits of the pair's first quad, 8 in each plane
			bits := planes[at/8*4*vectorCols+column] >> (at % 8) << 4
			low, high = low|bits&(16<<f.high-16), high|bits>>f.high&(16<<f.high-16)
		}
		to := dst[column/4*quantBlock+8*pair+column%4:]
		to[0], to[4] = f.values[low], f.values[high]
	}
}
