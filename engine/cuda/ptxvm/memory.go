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
	size    int
	windows map[uint64]*allocation // of a sparse allocation: its windows by base, made at first use. It has no data
	data    []byte
	written []uint64 // one bit per byte
	notes   []note   // one per word of 4 bytes
	readers map[int][]opID

	ReadBytes int64 // by kernels
}

// Allocations larger than sparseBytes take host memory only for the windows of windowBytes that are
// used. So a test can place pages as far apart as on a real device.
const (
	sparseBytes = 1 << 30
	windowBytes = 1 << 16
)

// note holds the last uses of a word: the operation, the kernel block, and within the block the epoch
// and the thread. Epochs are counted as for shared memory; 16 bits are enough, because they are compared
// within a block only.
type note struct {
	writer, reader           opID
	writerBlock, readerBlock int32
	wrote, readAt            uint16 // epochs
	wroteBy, readBy          user
}

// user is a thread of a block, from 1, and the halves of a word that it uses, as two bits from bit 12
// on. Threads that use different halves of a word do not meet: a kernel may store bf16 values side by
// side.
type user uint16

const (
	bothHalves  user = 3 << 12
	manyThreads user = 0xfff // several threads
)

// userOf returns the user for n bytes at offset at.
func userOf(w *warp, lane, at, n int) user {
	thread := user(w.first + lane + 1)
	if n == 2 {
		return thread | 1<<12<<(at>>1&1)
	}
	return thread | bothHalves
}

// meets reports whether two different threads use the same half of a word.
func (u user) meets(o user) bool { return u&o&bothHalves != 0 && (u^o)&manyThreads != 0 }

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
	a := &allocation{base: m.next, size: n, windows: map[uint64]*allocation{}}
	if n <= sparseBytes {
		a = newAllocation(m.next, n)
	}
	m.next += uint64(roundUp(n, align) + gap)
	m.used += n
	m.allocations = append(m.allocations, a) // ascending addresses
	return a.base, nil
}

func newAllocation(base uint64, n int) *allocation {
	size := roundUp(n, 16)
	a := &allocation{base: base, size: n, data: make([]byte, n, size), written: make([]uint64, (size+63)/64), notes: make([]note, size/4), readers: map[int][]opID{}}
	for i := range a.data {
		a.data[i] = 0xcd
	}
	return a
}

// window returns the window of a sparse allocation that contains addr.
func (a *allocation) window(addr uint64) *allocation {
	base := addr - (addr-a.base)%windowBytes
	w := a.windows[base]
	if w == nil {
		w = newAllocation(base, min(windowBytes, a.size-int(base-a.base)))
		a.windows[base] = w
	}
	return w
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
	m.used -= m.allocations[i].size
	m.allocations = slices.Delete(m.allocations, i, i+1)
	return nil
}

// UsedBytes returns the sum of all allocations.
func (m *Machine) UsedBytes() int { return m.used }

// ReadBytes returns the bytes that kernels have loaded from the allocation that contains addr, or from
// its window if the allocation is sparse. Repeated loads of the same bytes count each time.
func (m *Machine) ReadBytes(addr uint64) int64 {
	if a := m.find(addr); a != nil {
		return a.ReadBytes
	}
	return 0
}

func (m *Machine) find(addr uint64) *allocation {
	i := sort.Search(len(m.allocations), func(i int) bool { return m.allocations[i].base > addr }) - 1
	if i < 0 || addr >= m.allocations[i].base+uint64(m.allocations[i].size) {
		return nil
	}
	if a := m.allocations[i]; a.windows != nil {
		return a.window(addr)
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
	by, epoch := userOf(w, lane, at, n), uint16(b.shared.epoch)
	for i := at / 4; i < (at+n+3)/4; i++ {
		s := &a.notes[i]
		if s.writer == b.op {
			if s.writerBlock != int32(b.index) {
				fail(BlockRace, lane, "global address %#x was written by %s of this launch", addr, blockName(b, s.writerBlock))
			}
			if s.wrote == epoch && s.wroteBy.meets(by) {
				fail(GlobalRace, lane, "global address %#x is read here and was written by %s, without a barrier between", addr, threadName(b, s.wroteBy))
			}
		} else if s.writer != b.ordered { // most words were written by the operation that wrote the last one
			if s.writer != 0 && !m.before(s.writer) {
				fail(StreamRace, lane, "global address %#x is written by %s, which nothing orders before", addr, m.opName(s.writer))
			}
			b.ordered = s.writer
		}
		if s.reader != b.op || s.readerBlock != int32(b.index) {
			m.noteRead(a, i, b.op, int32(b.index))
			s.readAt, s.readBy = epoch, by
		} else if s.readAt != epoch || s.readBy != by {
			s.readThread(epoch, by)
		}
	}
	a.ReadBytes += int64(n)
	b.stats.ReadBytes += int64(n)
	return a.data[at : at+n]
}

// readThread records a read by another thread than the last one, or in a later epoch.
func (s *note) readThread(epoch uint16, by user) {
	if s.readAt == epoch && s.readBy&by&bothHalves != 0 {
		if s.readBy.meets(by) {
			by |= manyThreads
		}
		by |= s.readBy & bothHalves
	}
	s.readAt, s.readBy = epoch, by
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
	by, epoch := userOf(w, lane, at, n), uint16(b.shared.epoch)
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
		s.checkThreads(b, addr, lane, epoch, by, atomic)
		s.writer, s.writerBlock, s.wrote, s.wroteBy = b.op, block, epoch, by
	}
	a.written[at/64] |= (1<<n - 1) << (at % 64)
	b.stats.WrittenBytes += int64(n)
	return a.data[at : at+n]
}

// checkThreads panics with a fault if another thread of the running block has used the word since the
// last barrier, and nothing but atomic operations makes that safe.
func (s *note) checkThreads(b *block, addr uint64, lane int, epoch uint16, by user, atomic bool) {
	if s.reader == b.op && s.readerBlock == int32(b.index) && s.readAt == epoch && s.readBy.meets(by) {
		fail(GlobalRace, lane, "global address %#x is written here and was read by %s, without a barrier between", addr, threadName(b, s.readBy))
	}
	if !atomic && s.writer == b.op && s.writerBlock == int32(b.index) && s.wrote == epoch && s.wroteBy.meets(by) {
		fail(GlobalRace, lane, "global address %#x is written here and was written by %s, without a barrier between", addr, threadName(b, s.wroteBy))
	}
}

func threadName(b *block, u user) string {
	if u &= manyThreads; u != manyThreads {
		return "thread " + b.size.at(int(u)-1).String()
	}
	return "several threads"
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
