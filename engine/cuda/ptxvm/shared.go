package ptxvm

import (
	"encoding/binary"
	"math/bits"
)

// sharedMemory is the shared memory of a block. It records for each word which threads have used it
// since the last barrier, and before which bar.warp.sync of their warp.
type sharedMemory struct {
	data  []byte
	notes []sharedNote // one per word of 4 bytes
	base  uint32       // epochs up to base belong to earlier blocks
	epoch uint32       // incremented at each barrier

	pending int // words that an asynchronous copy will write
}

// sharedNote holds the last uses of a word. Threads count from 1; the value many means several.
type sharedNote struct {
	written, read     uint32 // epoch, 0: never
	writer, by        uint16 // threads
	readers           uint16 // the warp of all reads of this epoch, from 1
	writerAt          int32  // instruction
	readAt            int32
	wroteSync, atSync uint32 // bar.warp.sync of the writer's and of the readers' warp that were before
	atomic            bool
	pending           bool // an asynchronous copy will write it
}

const many = 0xffff

// before reports whether a bar.warp.sync orders an access by thread other, after that many of its warp's
// bar.warp.sync, before the running instruction of w.
func (w *warp) before(other uint16, syncs uint32) bool {
	return other != many && int(other-1)/lanes == w.first/lanes && syncs < w.syncs
}

func runWarpSync(w *warp, in *instr, mask uint32) {
	w.whole(mask, w.r[in.a][bits.TrailingZeros32(mask)])
	w.syncs++
}

func (s *sharedMemory) init(size int) {
	s.data, s.notes = make([]byte, size), make([]sharedNote, (size+3)/4)
}

func (s *sharedMemory) clear() {
	s.epoch++
	s.base = s.epoch
	if s.pending == 0 {
		return // the common case: a kernel waits for its copies
	}
	for i := range s.notes {
		s.notes[i].pending = false
	}
	s.pending = 0
}

// place returns addr as an offset. It panics with a fault of lane if n bytes there are out of
// bounds or not aligned.
func (s *sharedMemory) place(addr uint32, n, lane int) int {
	if int(addr)%n != 0 {
		fail(Misaligned, lane, "shared address %#x for %d bytes", addr, n)
	}
	if int(addr)+n > len(s.data) {
		fail(OutOfBounds, lane, "shared address %#x, %d bytes, of %d", addr, n, len(s.data))
	}
	return int(addr)
}

// read returns n bytes at addr for a load by the given lane. It panics with a fault if the lane
// may not load them now.
func (s *sharedMemory) read(w *warp, addr uint32, n, lane int) []byte {
	at := s.place(addr, n, lane)
	thread := uint16(w.first + lane + 1)
	for i := at / 4; i < (at+n+3)/4; i++ {
		note := &s.notes[i]
		if note.pending {
			fail(PendingCopy, lane, "shared address %#x", addr)
		}
		if note.written < s.base {
			fail(Uninitialised, lane, "shared address %#x", addr)
		}
		if note.written == s.epoch && note.writer != thread && !w.before(note.writer, note.wroteSync) {
			s.race(w, addr, lane, "read", "written", note.writer, note.writerAt)
		}
		if readers := uint16(w.first/lanes + 1); note.read != s.epoch {
			note.read, note.by, note.readers = s.epoch, thread, readers
		} else if note.by != thread {
			note.by = many
			if note.readers != readers {
				note.readers = many
			}
		}
		note.readAt, note.atSync = w.b.at, w.syncs
	}
	return s.data[at : at+n]
}

// write returns n bytes at addr for a store by the given lane. It panics with a fault if the lane
// may not store them now. With pending, an asynchronous copy writes the bytes later; with atomic,
// other threads may write them too.
func (s *sharedMemory) write(w *warp, addr uint32, n, lane int, pending, atomic bool) []byte {
	at := s.place(addr, n, lane)
	thread := uint16(w.first + lane + 1)
	for i := at / 4; i < (at+n+3)/4; i++ {
		note := &s.notes[i]
		if note.pending {
			fail(PendingCopy, lane, "shared address %#x", addr)
		}
		if note.written == s.epoch && note.writer != thread && !(atomic && note.atomic) && !w.before(note.writer, note.wroteSync) {
			s.race(w, addr, lane, "written", "written", note.writer, note.writerAt)
		}
		if note.read == s.epoch && note.by != thread && (int(note.readers) != w.first/lanes+1 || note.atSync == w.syncs) {
			s.race(w, addr, lane, "written", "read", note.by, note.readAt)
		}
		s.note(note, w, thread, pending, atomic)
	}
	return s.data[at : at+n]
}

func (s *sharedMemory) note(note *sharedNote, w *warp, thread uint16, pending, atomic bool) {
	if atomic && note.atomic && note.written == s.epoch && note.writer != thread {
		thread = many
	}
	if note.written == s.epoch && !note.atomic {
		atomic = false // the thread has also stored plainly: atomics of others race with that
	}
	if pending {
		s.pending++ // a word that is pending already can't be written
	}
	note.written, note.writer, note.writerAt, note.wroteSync, note.atomic, note.pending = s.epoch, thread, w.b.at, w.syncs, atomic, pending
}

func (s *sharedMemory) race(w *warp, addr uint32, lane int, now, before string, other uint16, at int32) {
	in := &w.b.k.code[at]
	thread := "several threads"
	if other != many {
		thread = "thread " + w.b.size.at(int(other-1)).String()
	}
	fail(SharedRace, lane, "shared address %#x is %s here and was %s by %s at %s:%d, without a barrier between",
		addr, now, before, thread, w.b.k.files[int(in.file)], in.line)
}

func runLoadShared(w *warp, in *instr, mask uint32) {
	n := int(in.size) * len(in.more)
	for ; mask != 0; mask &= mask - 1 {
		l := bits.TrailingZeros32(mask)
		w.unpack(in, l, w.b.shared.read(w, uint32(int64(w.r[in.a][l])+in.imm), n, l))
	}
}

func runStoreShared(w *warp, in *instr, mask uint32) {
	n := int(in.size) * len(in.more)
	for ; mask != 0; mask &= mask - 1 {
		l := bits.TrailingZeros32(mask)
		w.pack(in, l, w.b.shared.write(w, uint32(int64(w.r[in.a][l])+in.imm), n, l, false, false))
	}
}

func runAtomicShared(w *warp, in *instr, mask uint32) {
	s := &w.b.shared
	for ; mask != 0; mask &= mask - 1 {
		l := bits.TrailingZeros32(mask)
		addr := uint32(int64(w.r[in.a][l]) + in.imm)
		at := s.place(addr, int(in.size), l)
		if s.notes[at/4].written < s.base {
			fail(Uninitialised, l, "shared address %#x", addr)
		}
		w.r[in.d][l] = in.update(s.write(w, addr, int(in.size), l, false, true), w.r[in.b][l])
	}
}

// update runs an atomic operation with operand v on the bytes at: it reads, modifies and writes
// them. It returns the value before.
func (in *instr) update(at []byte, v uint64) (before uint64) {
	if in.size == 4 {
		before = uint64(binary.LittleEndian.Uint32(at))
		binary.LittleEndian.PutUint32(at, uint32(in.f2(before, v)))
		return before
	}
	before = binary.LittleEndian.Uint64(at)
	binary.LittleEndian.PutUint64(at, in.f2(before, v))
	return before
}

// unpack writes loaded bytes to lane l of the registers.
func (w *warp) unpack(in *instr, l int, from []byte) {
	switch {
	case in.size == 4 && in.signed:
		for i, r := range in.more {
			w.r[r][l] = uint64(int64(int32(binary.LittleEndian.Uint32(from[4*i:])))) // the register may have 64 bits
		}
	case in.size == 4:
		for i, r := range in.more {
			w.r[r][l] = uint64(binary.LittleEndian.Uint32(from[4*i:]))
		}
	case in.size == 2:
		for i, r := range in.more {
			w.r[r][l] = uint64(binary.LittleEndian.Uint16(from[2*i:]))
		}
	case in.size == 8:
		for i, r := range in.more {
			w.r[r][l] = binary.LittleEndian.Uint64(from[8*i:])
		}
	}
}

func (w *warp) pack(in *instr, l int, to []byte) {
	switch in.size {
	case 2:
		for i, r := range in.more {
			binary.LittleEndian.PutUint16(to[2*i:], uint16(w.r[r][l]))
		}
	case 4:
		for i, r := range in.more {
			binary.LittleEndian.PutUint32(to[4*i:], uint32(w.r[r][l]))
		}
	case 8:
		for i, r := range in.more {
			binary.LittleEndian.PutUint64(to[8*i:], w.r[r][l])
		}
	}
}

// asyncCopies holds a warp's asynchronous copies before the wait for them. They run at the wait, not
// before.
type asyncCopies struct {
	open  []asyncCopy
	group [lanes]int // the group that a lane's next copy belongs to
}

type asyncCopy struct {
	lane, group int
	dst         uint32
	src         uint64
	bytes       int
}

func (c *asyncCopies) reset() { *c = asyncCopies{open: c.open[:0]} }

func runCopyAsync(w *warp, in *instr, mask uint32) {
	for ; mask != 0; mask &= mask - 1 {
		l := bits.TrailingZeros32(mask)
		c := asyncCopy{lane: l, group: w.copies.group[l], dst: uint32(int64(w.r[in.d][l]) + in.imm), src: w.r[in.a][l] + uint64(in.target), bytes: int(uint32(w.r[in.b][l]))}
		if c.bytes != 0 && c.bytes != 16 {
			fail(OutOfBounds, l, "a copy of %d bytes of 16", c.bytes)
		}
		w.b.shared.write(w, c.dst, 16, l, true, false)
		if c.bytes > 0 {
			w.b.m.peek(w, c.src, l)
		}
		w.copies.open = append(w.copies.open, c)
	}
}

func runCommit(w *warp, _ *instr, mask uint32) {
	for ; mask != 0; mask &= mask - 1 {
		w.copies.group[bits.TrailingZeros32(mask)]++
	}
}

// runWait runs the copies of each lane in mask, except those of the lane's last imm committed
// groups and of the group that is not committed.
func runWait(w *warp, in *instr, mask uint32) {
	kept := w.copies.open[:0]
	for _, c := range w.copies.open {
		if mask>>c.lane&1 == 0 || c.group >= w.copies.group[c.lane]-int(in.imm) {
			kept = append(kept, c)
			continue
		}
		s := &w.b.shared
		to := s.data[c.dst : c.dst+16]
		clear(to)
		if c.bytes > 0 {
			copy(to, w.b.m.read(w, c.src, 16, c.lane))
		}
		s.pending -= 4
		for i := c.dst / 4; i < c.dst/4+4; i++ {
			s.notes[i].pending = false
			s.notes[i].written, s.notes[i].wroteSync = s.epoch, w.syncs // visible to this thread now, to others after a barrier
		}
	}
	w.copies.open = kept
}
