package kernels

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/coppice-llm/coppice/engine/model/gguf"
)

// Form describes how the device stores a matrix of a quantised type, and names the kernels for it. A
// matrix is in tiles of 8 rows, the last one padded with zeros. A tile is a sequence of steps of 32
// columns: one record each, with low bits by row and column/8, then high bits in the same order, then
// 16 bits of scales by row. If there are super scales, those of 256 columns follow each 8 steps.
type Form struct {
	Type gguf.Type

	low, high  int // bytes of 8 columns of a row
	superBytes int // of a row
	bias       int8

	perTile [len(gemms)]int64 // instructions of a kernel for a step of a tile, summed over threads, as the interpreter counts them (TestQuantisedInstructions)
}

// TileRows is the number of a form's rows that a tile holds.
const TileRows = 8

const (
	formDepth = 4  // of the ring of function few
	stepSize  = 32 // columns
)

var forms = [...]Form{
	{Type: gguf.Q8_0, low: 8, bias: -128, perTile: [...]int64{2470, 2610, 2640, 5160}},
	{Type: gguf.Q4_K, low: 4, superBytes: 4, perTile: [...]int64{3300, 3450, 3350, 6540}},
	{Type: gguf.Q6_K, low: 4, high: 2, superBytes: 2, bias: -32, perTile: [...]int64{3310, 3490, 3350, 6650}},
}

// Forms returns the forms that have kernels.
func Forms() []Form { return forms[:] }

// FormOf returns the form of weights of that type with rows of that many columns; nil if the device stores
// them in bf16.
func FormOf(t gguf.Type, columns int) *Form {
	for i := range forms {
		if f := &forms[i]; f.Type == t && columns%f.Type.BlockValues() == 0 {
			return f
		}
	}
	return nil
}

// suffix ends the names of the form's kernels.
func (f *Form) suffix() string { return "_" + strings.ToLower(f.Type.String()) }

// Module returns the name of the module with the form's kernels.
func (f *Form) Module() string { return "gemm" + f.suffix() }

// Kernel returns the name of the form's kernel that corresponds to a kernel for weights in bf16: gemm16,
// gemm32, gemm64, gemm128, gemm_slices or embed. widen writes a matrix in bf16,
// and make fills one with random weights.
func (f *Form) Kernel(name string) string { return name + f.suffix() }

// Kernels returns the names of all kernels of the form.
func (f *Form) Kernels() []string {
	var all []string
	for _, g := range gemms {
		all = append(all, f.Kernel(g.Name))
	}
	return append(all, f.Kernel("gemm_slices"), f.Kernel("embed"), f.Kernel("widen"), f.Kernel("make"))
}

// step returns the bytes of a record.
func (f *Form) step() int { return 32*(f.low+f.high) + 2*TileRows }

// SharedBytes returns the dynamic shared memory of a block of the form's kernel that corresponds to g.
func (f *Form) SharedBytes(g *GEMM) int {
	if g.SharedBytes == 0 {
		return 0
	}
	return 8 * g.Columns / TileRows * (formDepth*f.step() + 2*TileRows*f.superBytes)
}

// Widened reports whether the products of a layer widen their quantised weights to bf16 first, for that many
// rows: then they run the kernels for bf16. For fewer rows the kernels of the form take less time.
func Widened(rows int) bool { return rows > 64 }

// inFlight returns the bytes that a block of the form's kernel that corresponds to g has requested at a time.
func (f *Form) inFlight(g *GEMM) int64 {
	step := int64(g.Columns / TileRows * f.step())
	if g.Rows == 0 {
		return 2 * (8<<10 + step)
	}
	return 8 * (formDepth - 1) * step
}

// instructions returns the number of instructions of a block of the form's kernel that corresponds to g,
// for a product of depth k.
func (f *Form) instructions(g *GEMM, k int) int64 {
	for i := range gemms {
		if gemms[i].Name == g.Name {
			return f.perTile[i] * int64(k/stepSize*g.Columns/TileRows)
		}
	}
	return 0
}

// tile returns the bytes of a tile.
func (f *Form) tile(columns int) int {
	return columns/stepSize*f.step() + columns/(8*stepSize)*TileRows*f.superBytes
}

// Bytes returns the size of a matrix on the device.
func (f *Form) Bytes(rows, columns int) int { return blocks(rows, TileRows) * f.tile(columns) }

// Pack writes rows of a matrix from blocks as in a file to dst, in the device's form. row returns the
// blocks of row i, or nil if that is all zeros. dst holds Bytes(rows, columns).
func (f *Form) Pack(dst []byte, rows, columns int, row func(i int) []byte) {
	if len(dst) != f.Bytes(rows, columns) {
		panic(fmt.Sprintf("kernels: %d bytes for %d rows of %d columns of %v", len(dst), rows, columns, f.Type))
	}
	clear(dst)
	values, size := f.Type.BlockValues(), f.Type.BlockBytes()
	var b gguf.Block
	for i := range rows {
		from := row(i)
		if from == nil {
			continue
		}
		tile := dst[i/TileRows*f.tile(columns):][:f.tile(columns)]
		for at := range columns / values {
			src := from[at*size:][:size]
			gguf.Unpack(f.Type, &b, src)
			if f.superBytes == 0 {
				b.Super = binary.LittleEndian.Uint16(src) // the scale of the only sub-block
			}
			f.packBlock(tile, i%TileRows, at*values, values, &b)
		}
	}
}

// packBlock writes the values of a block that begins at a column of a row of a tile.
func (f *Form) packBlock(tile []byte, row, column, values int, b *gguf.Block) {
	supers := TileRows * f.superBytes
	for s := range values / stepSize {
		step := column/stepSize + s
		record := tile[step*f.step()+step/8*supers:][:f.step()]
		for quad := range 4 {
			f.packLane(record, 4*row+quad, b.Quants[s*stepSize+8*quad:][:8])
		}
		scales := record[32*(f.low+f.high)+2*row:]
		switch f.superBytes {
		case 0:
			binary.LittleEndian.PutUint16(scales, b.Super)
		case 2:
			scales[0], scales[1] = b.Factors[2*s], b.Factors[2*s+1]
		case 4:
			scales[0], scales[1] = b.Factors[s], b.MinFactors[s]
		}
	}
	if supers == 0 {
		return
	}
	end := column/(8*stepSize)*(8*f.step()+supers) + 8*f.step()
	super := tile[end+f.superBytes*row:]
	binary.LittleEndian.PutUint16(super, b.Super)
	if f.superBytes == 4 {
		binary.LittleEndian.PutUint16(super[2:], b.SuperMin)
	}
}

// packLane writes the 8 values that a lane of an mma uses.
func (f *Form) packLane(record []byte, lane int, quants []int8) {
	low, high := uint64(0), uint64(0)
	for i, q := range quants {
		v := uint64(uint8(q - f.bias))
		switch {
		case f.low == 8:
			low |= v << (8 * i)
		case f.high == 0:
			low |= v << (4 * i)
		default: // as Quant::load reads them: values 0 to 3 in the low halves of bytes
			low |= v & 15 << (8*(i%4) + i/4*4)
			high |= v >> 4 << (i/2*2 + i%2*8)
		}
	}
	if f.low == 8 {
		binary.LittleEndian.PutUint64(record[8*lane:], low)
		return
	}
	binary.LittleEndian.PutUint32(record[4*lane:], uint32(low))
	if f.high > 0 {
		binary.LittleEndian.PutUint16(record[32*f.low+2*lane:], uint16(high))
	}
}
