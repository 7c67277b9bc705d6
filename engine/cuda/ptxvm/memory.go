package ptxvm

import (
	"fmt"
	"math/bits"
	"slices"
	"sort"
)

const (
	firstAddress = 0x7000_0000_0000
	align        = 256 // alignment of allocations
	gap          = 1 << 16
)

// allocation is a piece of device memory. It records which bytes have been written, and which
// operations last used each word.
type allocation struct {
	base    uint64
	data    []byte
	written []uint64 // one bit per byte
	notes   []note   // one per word of 4 bytes
	readers map[int][]opID

	ReadBytes int64 // by kernels
}

// note holds the last uses of a word, and the kernel block of each.
type note struct {
	writer, reader           opID
	writerBlock, readerBlock int32
}

// Special blocks of a note: several blocks, or atomics.
const (
	manyBlocks = -1
	byAtomics  = -2
)

// Alloc allocates n bytes of device memory, which are not initialised.
func (m *Machine) Alloc(n int) (uint64, error) {
	if m.fault != nil {
		return 0, m.fault
	}
	if n <= 0 || n > m.config.MemoryBytes-m.used {
		return 0, fmt.Errorf("%w: %d bytes of %d, %d in use", ErrMemory, n, m.config.MemoryBytes, m.used)
	}
	size := roundUp(n, 16)
	a := &allocation{base: m.next, data: make([]byte, n, size), written: make([]uint64, (size+63)/64), notes: make([]note, size/4), readers: map[int][]opID{}}
	for i := range a.data {
		a.data[i] = 0xcd
	}
	m.next += uint64(roundUp(n, align) + gap)
	m.used += n
	m.allocations = append(m.allocations, a) // ascending addresses
	return a.base, nil
}

// Free runs all queued work, and then frees an allocation.
func (m *Machine) Free(addr uint64) error {
	if err := m.Sync(); err != nil {
		return err
	}
	i := slices.IndexFunc(m.allocations, func(a *allocation) bool { return a.base == addr })
	if i < 0 {
		return fmt.Errorf("ptxvm: no allocation begins at %#x", addr)
	}
	m.used -= len(m.allocations[i].data)
	m.allocations = slices.Delete(m.allocations, i, i+1)
	return nil
}

// UsedBytes returns the sum of all allocations.
func (m *Machine) UsedBytes() int { return m.used }

// ReadBytes returns the bytes that kernels have loaded from the allocation that contains addr.
// Repeated loads of the same bytes count each time.
func (m *Machine) ReadBytes(addr uint64) int64 {
	if a := m.find(addr); a != nil {
		return a.ReadBytes
	}
	return 0
}

func (m *Machine) find(addr uint64) *allocation {
	i := sort.Search(len(m.allocations), func(i int) bool { return m.allocations[i].base > addr }) - 1
	if i < 0 || addr >= m.allocations[i].base+uint64(len(m.allocations[i].data)) {
		return nil
	}
	return m.allocations[i]
}

// locate returns the allocation that holds n bytes at addr, and their offset in it. It panics with
// a fault of lane if there is none or addr is not aligned.
func (m *Machine) locate(w *warp, addr uint64, n, lane int) (*allocation, int) {
	a := w.last
	if a == nil || addr < a.base || addr >= a.base+uint64(len(a.data)) {
		if a = m.find(addr); a == nil {
			fail(OutOfBounds, lane, "global address %#x, %d bytes: no allocation there", addr, n)
		}
		w.last = a
	}
	at := int(addr - a.base)
	if at+n > len(a.data) {
		fail(OutOfBounds, lane, "global address %#x, %d bytes, reach beyond an allocation of %d", addr, n, len(a.data))
	}
	if addr%uint64(n) != 0 {
		fail(Misaligned, lane, "global address %#x for %d bytes", addr, n)
	}
	return a, at
}

// has reports whether n <= 16 aligned bytes have been written.
func (a *allocation) has(at, n int) bool {
	want := uint64(1)<<n - 1
	return a.written[at/64]>>(at%64)&want == want
}

// read returns n aligned bytes at addr for a load by the given lane. It panics with a fault if the
// lane may not load them now.
func (m *Machine) read(w *warp, addr uint64, n, lane int) []byte {
	a, at := m.locate(w, addr, n, lane)
	if !a.has(at, n) {
		fail(Uninitialised, lane, "global address %#x, byte %d of its allocation", addr, at)
	}
	b := w.b
	for i := at / 4; i < (at+n+3)/4; i++ {
		s := &a.notes[i]
		if s.writer == b.op {
			if s.writerBlock != int32(b.index) {
				fail(BlockRace, lane, "global address %#x was written by %s of this launch", addr, blockName(b, s.writerBlock))
			}
		} else if s.writer != b.ordered { // most words were written by the operation that wrote the last one
			if s.writer != 0 && !m.before(s.writer) {
				fail(StreamRace, lane, "global address %#x is written by %s, which nothing orders before", addr, m.opName(s.writer))
			}
			b.ordered = s.writer
		}
		if s.reader != b.op || s.readerBlock != int32(b.index) {
			m.noteRead(a, i, b.op, int32(b.index))
		}
	}
	a.ReadBytes += int64(n)
	b.stats.ReadBytes += int64(n)
	return a.data[at : at+n]
}

// noteRead records op as the reader of word i. It also keeps an earlier reader that is not ordered
// before op.
func (m *Machine) noteRead(a *allocation, i int, op opID, block int32) {
	s := &a.notes[i]
	if s.reader == op {
		if s.readerBlock != block {
			s.readerBlock = manyBlocks
		}
		return
	}
	if s.reader != 0 && !m.before(s.reader) {
		a.readers[i] = append(a.readers[i], s.reader)
	}
	s.reader, s.readerBlock = op, block
}

// write returns n aligned bytes at addr for a store by the given lane. It panics with a fault if
// the lane may not store them now. With atomic, other blocks may store there, too.
func (m *Machine) write(w *warp, addr uint64, n, lane int, atomic bool) []byte {
	a, at := m.locate(w, addr, n, lane)
	b := w.b
	block := int32(b.index)
	if atomic {
		block = byAtomics
	}
	for i := at / 4; i < (at+n+3)/4; i++ {
		s := &a.notes[i]
		if s.writer == b.op && s.writerBlock != block && (s.writerBlock != byAtomics || !atomic) {
			fail(BlockRace, lane, "global address %#x was written by %s of this launch", addr, blockName(b, s.writerBlock))
		}
		if s.reader == b.op && s.readerBlock != block && !(atomic && s.readerBlock == int32(b.index)) {
			fail(BlockRace, lane, "global address %#x was read by %s of this launch", addr, blockName(b, s.readerBlock))
		}
		if other := m.unordered(a, i, b.op); other != 0 {
			fail(StreamRace, lane, "global address %#x is used by %s, which nothing orders before", addr, m.opName(other))
		}
		s.writer, s.writerBlock = b.op, block
	}
	a.written[at/64] |= (1<<n - 1) << (at % 64)
	b.stats.WrittenBytes += int64(n)
	return a.data[at : at+n]
}

func blockName(b *block, i int32) string {
	switch i {
	case manyBlocks:
		return "several blocks"
	case byAtomics:
		return "atomics"
	}
	return "block " + b.grid.at(int(i)).String()
}

// unordered returns an earlier use of word i that is not ordered before op, 0 if there is none.
func (m *Machine) unordered(a *allocation, i int, op opID) opID {
	s := &a.notes[i]
	if s.writer != 0 && s.writer != op && !m.before(s.writer) {
		return s.writer
	}
	if s.reader != 0 && s.reader != op && !m.before(s.reader) {
		return s.reader
	}
	if len(a.readers) == 0 {
		return 0
	}
	for _, r := range a.readers[i] {
		if r != op && !m.before(r) {
			return r
		}
	}
	delete(a.readers, i)
	return 0
}

// peek checks the source of an asynchronous copy when the copy begins; the data is read later.
func (m *Machine) peek(w *warp, addr uint64, lane int) {
	if a, at := m.locate(w, addr, 16, lane); !a.has(at, 16) {
		fail(Uninitialised, lane, "global address %#x, byte %d of its allocation", addr, at)
	}
}

func runLoadParam(w *warp, in *instr, mask uint32) {
	first := bits.TrailingZeros32(mask)
	w.unpack(in, first, w.b.params[in.imm:int(in.imm)+int(in.size)*len(in.more)])
	for _, r := range in.more { // all lanes load the same
		row := &w.r[r]
		for m := mask; m != 0; m &= m - 1 {
			row[bits.TrailingZeros32(m)] = row[first]
		}
	}
}

func runLoadGlobal(w *warp, in *instr, mask uint32) {
	n := int(in.size) * len(in.more)
	for ; mask != 0; mask &= mask - 1 {
		l := bits.TrailingZeros32(mask)
		w.unpack(in, l, w.b.m.read(w, w.r[in.a][l]+uint64(in.imm), n, l))
	}
}

func runStoreGlobal(w *warp, in *instr, mask uint32) {
	n := int(in.size) * len(in.more)
	for ; mask != 0; mask &= mask - 1 {
		l := bits.TrailingZeros32(mask)
		w.pack(in, l, w.b.m.write(w, w.r[in.a][l]+uint64(in.imm), n, l, false))
	}
}

func runAtomicGlobal(w *warp, in *instr, mask uint32) {
	m := w.b.m
	for ; mask != 0; mask &= mask - 1 {
		l := bits.TrailingZeros32(mask)
		addr := w.r[in.a][l] + uint64(in.imm)
		if a, at := m.locate(w, addr, int(in.size), l); !a.has(at, int(in.size)) {
			fail(Uninitialised, l, "global address %#x, byte %d of its allocation", addr, at)
		}
		w.r[in.d][l] = in.update(m.write(w, addr, int(in.size), l, true), w.r[in.b][l])
	}
}
