package cpu

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/coppice-llm/coppice/internal/f32"
)

// The portable products with quantised weights compute four products of small integers by one
// multiplication of 64-bit words ("SIMD within a register"). A word of weights has four lanes of 16
// bits. Lanes 0 and 1 hold the weights of one column for k and k+2 (for k and k+4, the nibbles of one
// byte, if nibbles are indices into a table), lanes 2 and 3 those of the next column. With k' for k+2
// or k+4, the word is multiplied by q(k') + q(k)·2^16. As in a product of polynomials in 2^16, lane 1
// of the result is w(k)·q(k) + w(k')·q(k') of the first column, and lane 3 is the same of the second.
// Lanes 0 and 2 hold products of no use.
//
// Words are added modulo 2^64. The result is exact if each lane of the final sum fits into 16 bits;
// what overflows on the way cancels. Lanes may be negative, so a sum starts at 2^15 in each lane, and
// no lane then borrows from the next. To make lanes small, stored weights in [0, 2z) are centred: a
// sum starts at -z·Σq in each lane, which makes it the sum of (w-z)·q. A word adds at most 2·z·127
// to a lane. For weights of four bits, z is 8 and 16 words stay below 2^15: 16·2·8·127 = 32512. So
// do 8 words of five bits, 4 of six bits and 1 of eight bits.

const (
	lanes     = 1<<48 | 1<<32 | 1<<16 | 1 // a one in each lane
	laneStart = 1 << 15 * lanes           // 2^15 in each lane
	// blockWords is the number of words of two columns in a block.
	blockWords = quantBlock / 2
	// oddLanes selects lanes 0 and 2: the results, once a sum has been shifted by one lane.
	oddLanes = 0xffff0000ffff
)

// swarPanel computes the products of one panel. It holds a block of weights, unpacked.
type swarPanel struct {
	*quantPanel
	words  [vectorCols / 2][blockWords]uint64
	heads  [3][vectorCols]float32 // scales of each sub-block, then minima
	supers [2][vectorCols]float32 // f16 shared by eight blocks: of scales, of minima
}

// product multiplies n rows of records x by the panel and writes the result to out, whose rows are
// stride elements apart.
func (p *quantPanel) product(out []float32, stride int, x []byte, n int) {
	f, row := p.format, len(x)/n
	for r := range n {
		clear(out[r*stride : r*stride+vectorCols])
	}
	s := swarPanel{quantPanel: p}
	for b := range len(p.data) / f.blockBytes() {
		s.load(b)
		for r := range n {
			s.addBlock((*[vectorCols]float32)(out[r*stride:]), (*[recordBytes]byte)(x[r*row+b*recordBytes:]))
		}
	}
}

// load unpacks block b.
func (s *swarPanel) load(b int) {
	f := s.format
	data := s.data[b*f.blockBytes() : (b+1)*f.blockBytes()]
	if f.scales == factors && b%superBlocks == 0 {
		of := s.quantPanel.supers[b/superBlocks*f.superBytes():][:f.superBytes()]
		for i := range len(of) / (2 * vectorCols) {
			widenHalves(&s.supers[i], of[2*vectorCols*i:])
		}
	}
	heads := f.headBytes() / (vectorCols * f.scaleBytes())
	for i := range heads {
		s.loadHead(&s.heads[i], i, data[i*vectorCols*f.scaleBytes():])
	}
	s.loadWeights(data[f.headBytes():])
}

// loadHead widens the i-th scales, or for i = subs the minima, of a block.
func (s *swarPanel) loadHead(dst *[vectorCols]float32, i int, src []byte) {
	switch s.format.scales {
	case halves:
		widenHalves(dst, src)
	case floats:
		for c := range dst {
			dst[c] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*c:]))
		}
	case factors: // the products are exact: 11 bits by 8
		switch {
		case i == s.format.subs:
			for c, of := range s.supers[1] {
				dst[c] = of * float32(src[c])
			}
		case s.format.mins:
			for c, of := range s.supers[0] {
				dst[c] = of * float32(src[c])
			}
		default:
			for c, of := range s.supers[0] {
				dst[c] = of * float32(int8(src[c]))
			}
		}
	}
}

func widenHalves(dst *[vectorCols]float32, src []byte) {
	const exponent, rebias = 31 << 10, (127 - 15) << 23
	src = src[:2*vectorCols]
	for c := range dst {
		h := binary.LittleEndian.Uint16(src[2*c:])
		if e := h & exponent; e == 0 || e == exponent {
			dst[c] = f32.FromF16(h)
			continue
		}
		dst[c] = math.Float32frombits(uint32(h&(1<<15))<<16 | uint32(h&(1<<15-1))<<13 + rebias)
	}
}

// lines has four bytes of each column of a panel. A word of it is two adjacent columns.
type lines [vectorCols / 2][8]byte

func (l *lines) word(c int) uint64 { return binary.LittleEndian.Uint64(l[c][:]) }

// loadWeights unpacks the weights of a block. Words 2j and 2j+1 of two columns are the even and the
// odd k of quad j.
func (s *swarPanel) loadWeights(src []byte) {
	const mask = 15 * lanes
	const size = 4 * vectorCols
	if s.format.packed == asBytes {
		l := (*[8]lines)(unsafe.Pointer(&src[:8*size][0]))
		for c := range s.words {
			for j := range l {
				x := l[j].word(c)
				s.words[c][2*j], s.words[c][2*j+1] = x&(255*lanes), x>>8&(255*lanes)
			}
		}
		return
	}
	l := (*[4]lines)(unsafe.Pointer(&src[:4*size][0]))
	switch {
	case s.format.packed == byTable:
		s.loadTable(l)
	case s.format.high == 1:
		s.loadFive(l, (*lines)(unsafe.Pointer(&src[4*size : 5*size][0])))
	case s.format.high == 2:
		s.loadSix(l, (*[2]lines)(unsafe.Pointer(&src[4*size : 6*size][0])))
	default:
		for c := range s.words {
			w, x0, x1, x2, x3 := &s.words[c], l[0].word(c), l[1].word(c), l[2].word(c), l[3].word(c)
			w[0], w[1], w[2], w[3] = x0&mask, x0>>8&mask, x0>>4&mask, x0>>12&mask
			w[4], w[5], w[6], w[7] = x1&mask, x1>>8&mask, x1>>4&mask, x1>>12&mask
			w[8], w[9], w[10], w[11] = x2&mask, x2>>8&mask, x2>>4&mask, x2>>12&mask
			w[12], w[13], w[14], w[15] = x3&mask, x3>>8&mask, x3>>4&mask, x3>>12&mask
		}
	}
}

// loadTable unpacks nibbles that are indices into a table. Word 4i+j of two columns holds both nibbles
// of byte j of l[i]: k is j in quad 2i and in quad 2i+1.
func (s *swarPanel) loadTable(l *[4]lines) {
	pairs := &s.format.pairs
	for c := range s.words {
		w := &s.words[c]
		for i := range l {
			x, w := &l[i][c], (*[4]uint64)(w[4*i:])
			w[0] = uint64(pairs[x[0]]) | uint64(pairs[x[4]])<<32
			w[1] = uint64(pairs[x[1]]) | uint64(pairs[x[5]])<<32
			w[2] = uint64(pairs[x[2]]) | uint64(pairs[x[6]])<<32
			w[3] = uint64(pairs[x[3]]) | uint64(pairs[x[7]])<<32
		}
	}
}

// loadFive unpacks nibbles and the bits above them. A byte of high has one bit of each quad.
func (s *swarPanel) loadFive(l *[4]lines, high *lines) {
	const mask, bit = 15 * lanes, 16 * lanes
	for c := range s.words {
		h := high.word(c)
		w, x0, x1, x2, x3, g := &s.words[c], l[0].word(c), l[1].word(c), l[2].word(c), l[3].word(c), h>>8
		w[0], w[1], w[2], w[3] = x0&mask|h<<4&bit, x0>>8&mask|g<<4&bit, x0>>4&mask|h<<3&bit, x0>>12&mask|g<<3&bit
		w[4], w[5], w[6], w[7] = x1&mask|h<<2&bit, x1>>8&mask|g<<2&bit, x1>>4&mask|h<<1&bit, x1>>12&mask|g<<1&bit
		w[8], w[9], w[10], w[11] = x2&mask|h&bit, x2>>8&mask|g&bit, x2>>4&mask|h>>1&bit, x2>>12&mask|g>>1&bit
		w[12], w[13], w[14], w[15] = x3&mask|h>>2&bit, x3>>8&mask|g>>2&bit, x3>>4&mask|h>>3&bit, x3>>12&mask|g>>3&bit
	}
}

// loadSix unpacks nibbles and the bits above them. A byte of high[i] has two bits of each of the quads
// 4i to 4i+3.
func (s *swarPanel) loadSix(l *[4]lines, high *[2]lines) {
	const mask, bits = 15 * lanes, 48 * lanes
	for c := range s.words {
		w, x0, x1, x2, x3 := &s.words[c], l[0].word(c), l[1].word(c), l[2].word(c), l[3].word(c)
		h := high[0].word(c)
		g := h >> 8
		w[0], w[1], w[2], w[3] = x0&mask|h<<4&bits, x0>>8&mask|g<<4&bits, x0>>4&mask|h<<2&bits, x0>>12&mask|g<<2&bits
		w[4], w[5], w[6], w[7] = x1&mask|h&bits, x1>>8&mask|g&bits, x1>>4&mask|h>>2&bits, x1>>12&mask|g>>2&bits
		h = high[1].word(c)
		g = h >> 8
		w[8], w[9], w[10], w[11] = x2&mask|h<<4&bits, x2>>8&mask|g<<4&bits, x2>>4&mask|h<<2&bits, x2>>12&mask|g<<2&bits
		w[12], w[13], w[14], w[15] = x3&mask|h&bits, x3>>8&mask|g&bits, x3>>4&mask|h>>2&bits, x3>>12&mask|g>>2&bits
	}
}

// addBlock adds the product of the block and a record to all columns of out.
func (s *swarPanel) addBlock(out *[vectorCols]float32, record *[recordBytes]byte) {
	f := s.format
	var sums [2][vectorCols]int32
	s.sum(&sums, record)
	d, low := recordFloat(record[:], recordD), recordFloat(record[:], recordMin)
	switch {
	case f.subs == 2:
		chain(out, &sums[0], &s.heads[0], d)
		chain(out, &sums[1], &s.heads[1], d)
	case !f.mins:
		chain(out, &sums[0], &s.heads[0], d)
	case low >= leastMin || -low >= leastMin:
		chainMins(out, &sums[0], &s.heads[0], &s.heads[1], d, float64(low))
	default:
		chain(out, &sums[0], &s.heads[0], d)
		for c, m := range s.heads[1] {
			out[c] = f32.FMA32(m, low, out[c])
		}
	}
}

// sum writes the integer sums of the block and a record: of each sub-block and column.
func (s *swarPanel) sum(dst *[2][vectorCols]int32, record *[recordBytes]byte) {
	var q [blockWords]uint64
	for i := range q {
		k, next := i/2*4+i%2, 2
		if s.format.packed == byTable {
			k, next = i/4*8+i%4, 4
		}
		q[i] = uint64(int64(int8(record[k+next])) + int64(int8(record[k]))<<16)
	}
	if s.format.bits() == 8 {
		s.sumBytes(&dst[0], &q)
		return
	}
	centre := int32(1) << (s.format.bits() - 1)
	fix := int32(0) // z minus the offset of stored weights, times Σq
	if s.format.packed != byTable {
		fix = (centre - int32(s.format.added)) * int32(binary.LittleEndian.Uint32(record[recordSum:]))
	}
	var start [4]uint64
	for i := range start {
		start[i] = -uint64(centre) * lanes * (q[4*i] + q[4*i+1] + q[4*i+2] + q[4*i+3])
	}
	switch s.format.bits() {
	case 4:
		first := start[0] + start[1] + start[2] + start[3] + laneStart
		fix -= 1 << 15
		for c := range s.words {
			w := &s.words[c]
			a := first + w[0]*q[0] + w[1]*q[1] + w[2]*q[2] + w[3]*q[3] + w[4]*q[4] + w[5]*q[5] + w[6]*q[6] + w[7]*q[7] +
				w[8]*q[8] + w[9]*q[9] + w[10]*q[10] + w[11]*q[11] + w[12]*q[12] + w[13]*q[13] + w[14]*q[14] + w[15]*q[15]
			dst[0][2*c], dst[0][2*c+1] = int32(a>>16&0xffff)+fix, int32(a>>48)+fix
		}
	case 5:
		first, second := start[0]+start[1]+laneStart, start[2]+start[3]+laneStart
		fix -= 2 << 15
		for c := range s.words {
			w := &s.words[c]
			a := first + w[0]*q[0] + w[1]*q[1] + w[2]*q[2] + w[3]*q[3] + w[4]*q[4] + w[5]*q[5] + w[6]*q[6] + w[7]*q[7]
			b := second + w[8]*q[8] + w[9]*q[9] + w[10]*q[10] + w[11]*q[11] + w[12]*q[12] + w[13]*q[13] + w[14]*q[14] + w[15]*q[15]
			e := a>>16&oddLanes + b>>16&oddLanes
			dst[0][2*c], dst[0][2*c+1] = int32(e)+fix, int32(e>>32)+fix
		}
	default: // six bits in two sub-blocks, stored with an offset of z
		fix -= 2 << 15
		for c := range s.words {
			w := &s.words[c]
			a0 := start[0] + laneStart + w[0]*q[0] + w[1]*q[1] + w[2]*q[2] + w[3]*q[3]
			a1 := start[1] + laneStart + w[4]*q[4] + w[5]*q[5] + w[6]*q[6] + w[7]*q[7]
			b0 := start[2] + laneStart + w[8]*q[8] + w[9]*q[9] + w[10]*q[10] + w[11]*q[11]
			b1 := start[3] + laneStart + w[12]*q[12] + w[13]*q[13] + w[14]*q[14] + w[15]*q[15]
			e, g := a0>>16&oddLanes+a1>>16&oddLanes, b0>>16&oddLanes+b1>>16&oddLanes
			dst[0][2*c], dst[0][2*c+1] = int32(e)+fix, int32(e>>32)+fix
			dst[1][2*c], dst[1][2*c+1] = int32(g)+fix, int32(g>>32)+fix
		}
	}
}

// sumBytes is sum for weights of eight bits. A lane takes one word only, so each product is cut into
// lanes of 32 bits before it is added.
func (s *swarPanel) sumBytes(dst *[vectorCols]int32, q *[blockWords]uint64) {
	var start [blockWords]uint64
	for i := range start {
		start[i] = laneStart - quantBias*lanes*q[i]
	}
	const fix = -blockWords << 15
	for c := range s.words {
		w := &s.words[c]
		e := (start[0]+w[0]*q[0])>>16&oddLanes + (start[1]+w[1]*q[1])>>16&oddLanes +
			(start[2]+w[2]*q[2])>>16&oddLanes + (start[3]+w[3]*q[3])>>16&oddLanes +
			(start[4]+w[4]*q[4])>>16&oddLanes + (start[5]+w[5]*q[5])>>16&oddLanes +
			(start[6]+w[6]*q[6])>>16&oddLanes + (start[7]+w[7]*q[7])>>16&oddLanes +
			(start[8]+w[8]*q[8])>>16&oddLanes + (start[9]+w[9]*q[9])>>16&oddLanes +
			(start[10]+w[10]*q[10])>>16&oddLanes + (start[11]+w[11]*q[11])>>16&oddLanes +
			(start[12]+w[12]*q[12])>>16&oddLanes + (start[13]+w[13]*q[13])>>16&oddLanes +
			(start[14]+w[14]*q[14])>>16&oddLanes + (start[15]+w[15]*q[15])>>16&oddLanes
		dst[2*c], dst[2*c+1] = int32(e)+fix, int32(e>>32)+fix
	}
}

// chain computes out ← fma(sums, scales·d, out) for each column. The product is an integer times an
// f32, so its last bit is at least 2^-149, as that of out. A sum below 2^-126 is then exact, and only
// a sum half-way between two f32 can be rounded wrongly.
func chain(out *[vectorCols]float32, sums *[vectorCols]int32, scales *[vectorCols]float32, d float32) {
	for c, sum := range sums {
		x := float32(scales[c] * d)
		s := float64(sum)*float64(x) + float64(out[c]) // the product is exact, fused or not
		if f32.Halfway(s) {
			out[c] = f32.FMA32(float32(sum), x, out[c])
			continue
		}
		out[c] = float32(s)
	}
}

// leastMin is the least float32(Σq)·d for chainMins. The last bit of such an f32 is at least
// 2^-123, that of a minimum 2^-24, since a minimum is an f16 or an integer times an f16.
const leastMin = 0x1p-100

// chainMins computes chain and then out ← fma(mins, low, out), for |low| of at least leastMin.
func chainMins(out *[vectorCols]float32, sums *[vectorCols]int32, scales, mins *[vectorCols]float32, d float32, low float64) {
	for c, sum := range sums {
		x := float32(scales[c] * d)
		s := float64(sum)*float64(x) + float64(out[c])
		t := float32(s)
		if f32.Halfway(s) {
			t = f32.FMA32(float32(sum), x, out[c])
		}
		s = float64(mins[c])*low + float64(t)
		if f32.Halfway(s) {
			out[c] = f32.FMA32(mins[c], float32(low), t)
			continue
		}
		out[c] = float32(s)
	}
}

func recordFloat(x []byte, at int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(x[at:]))
}
