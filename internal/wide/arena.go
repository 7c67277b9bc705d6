package wide

import (
	"math/bits"
	"slices"
	"strings"
	"unsafe"

	"github.com/coppice-llm/coppice/internal/invariants"
)

// Arena allocates the arrays of Vecs from chunks of memory, in huge pages where the system has them.
// Later chunks are larger. Most of the gain is in page faults: the first write to a page costs more
// than the writes themselves, and a huge page takes one fault for 2 MiB instead of one for 4 KiB.
//
// It is a two-level segregated fit (Masmano et al., 2004). There is a list of free blocks for each
// class of sizes. An array takes the first block of the smallest class whose blocks are all large
// enough. A freed block is merged with its free neighbours. Allocating costs O(1), freeing also a
// binary search among the chunks. Arrays of less than [ArenaWords] words and those of more than
// largestArray are on the Go heap, because an Arena gains nothing for them. The zero Arena is empty.
// It has no lock: the owner of its Vecs owns it.
type Arena[T Word] struct {
	chunks []*chunk                         // by chunk.index, the high bits of a block's number
	byAddr []*chunk                         // ascending by address
	lists  [arenaClasses]uint32             // by class: number + 1 of the first free block; 0 if none
	filled [(arenaClasses + 63) / 64]uint64 // bit set of the classes with free blocks
	words  int                              // words in all chunks
	used   int                              // granules in all arrays
}

// ArenaWords is the length of the shortest array that an Arena holds.
const ArenaWords = 128

const (
	granule      = 16            // words: a cache line, and a page of KV with the usual 16 tokens
	minChunk     = 1 << 14       // words
	maxChunk     = 1 << 21       // words: 8 MiB
	chunkBits    = 17            // low bits of a block's number: its granule within the chunk
	subBits      = 3             // log2 of the classes for each doubling of the size
	arenaClasses = 18 << subBits // classes for sizes up to maxChunk
	largestArray = maxChunk / 4  // words
)

// chunk is a block of memory with two bits for each granule: whether a free block begins there, and
// whether one ends there. The first three words of a free block are its length in granules and its
// predecessor and successor in the list of its class, each as number + 1; its last word is its
// length again.
type chunk struct {
	words        []uint32
	begins, ends []uint64
	index        uint32 // index in Arena.chunks
}

func (c *chunk) base() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(c.words))) }

// Of returns a Vec with a copy of s, in the arena if it holds arrays of that length.
func (a *Arena[T]) Of(s []T) Vec[T] {
	if len(s) < ArenaWords || len(s) > largestArray {
		return VecOf(s)
	}
	return a.copyOf(s)
}

// copyOf is Of for ArenaWords to largestArray words.
func (a *Arena[T]) copyOf(s []T) Vec[T] {
	need := uint32((len(s) + granule - 1) / granule)
	words := a.take(need)
	copy(words, asWords(s))
	return Vec[T]{(*T)(unsafe.Pointer(unsafe.SliceData(words))), int32(len(s)), int32(need * granule)}
}

// CloneRange returns a Vec with a copy of words [lo, hi) of v.
func (a *Arena[T]) CloneRange(v *Vec[T], lo, hi int) Vec[T] { return a.Of(v.Slice()[lo:hi]) }

// Free empties v, and frees its array if that is in the arena.
func (a *Arena[T]) Free(v *Vec[T]) {
	if v.cap >= ArenaWords {
		a.freeArray(v)
	}
	*v = Vec[T]{}
}

// freeArray makes the array of v a free block if it is in the arena.
func (a *Arena[T]) freeArray(v *Vec[T]) {
	if c, at := a.find(v); c != nil {
		a.release(c, at, uint32(v.cap)/granule)
	}
}

// Truncate keeps the first n words of v, 0 <= n <= Len, and frees the granules after them. If fewer
// than ArenaWords remain, they move to the Go heap.
func (a *Arena[T]) Truncate(v *Vec[T], n int) {
	c, at := a.find(v)
	if c == nil {
		v.Truncate(n)
		return
	}
	if n < ArenaWords {
		short := VecOf(v.Slice()[:n])
		a.Free(v)
		*v = short
		return
	}
	left, held := uint32((n+granule-1)/granule), uint32(v.cap)/granule
	v.len, v.cap = int32(n), int32(left*granule)
	if left < held {
		a.release(c, at+left, held-left)
	}
}

// Bytes returns the bytes of all chunks, and the bytes of them that arrays use.
func (a *Arena[T]) Bytes() (held, used int) { return wordBytes * a.words, wordBytes * granule * a.used }

// Holds reports whether the array of v is in the arena.
func (a *Arena[T]) Holds(v *Vec[T]) bool {
	c, _ := a.find(v)
	return c != nil
}

// find returns the chunk that contains the array of v, and the index of the array's first granule in
// that chunk. It returns nil if the array is not in the arena.
func (a *Arena[T]) find(v *Vec[T]) (*chunk, uint32) {
	if v.cap < ArenaWords {
		return nil, 0
	}
	addr := uintptr(unsafe.Pointer(v.data))
	lo, hi := 0, len(a.byAddr)
	for lo < hi {
		if mid := (lo + hi) / 2; a.byAddr[mid].base() <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return nil, 0
	}
	c := a.byAddr[lo-1]
	at := (addr - c.base()) / wordBytes
	if at >= uintptr(len(c.words)) {
		return nil, 0
	}
	return c, uint32(at / granule)
}

// take allocates count granules and returns their words. The granules are the start of a free block
// from the smallest class whose blocks all have at least count granules; the block's other granules
// become a free block. If there is no such block, take adds a chunk.
func (a *Arena[T]) take(count uint32) []uint32 {
	class := classOf(count + 1<<max(0, bits.Len32(count)-1-subBits) - 1)
	found := a.firstFrom(class)
	if found == arenaClasses {
		a.grow(int(count) * granule)
		found = a.firstFrom(class)
	}
	block := a.lists[found] - 1
	c, at := a.chunks[block>>chunkBits], block&(1<<chunkBits-1)
	size := c.words[at*granule]
	a.unlist(c, at, size)
	if size > count {
		a.list(c, at+count, size-count)
	}
	a.used += int(count)
	return c.words[at*granule : (at+count)*granule : (at+count)*granule]
}

// release makes granules [at, at+count) of c, which an array has used, a free block, and merges it with
// its free neighbours.
func (a *Arena[T]) release(c *chunk, at, count uint32) {
	if invariants.Enabled {
		poison(c.words[at*granule : (at+count)*granule])
	}
	a.used -= int(count)
	if at > 0 && c.ends[(at-1)/64]&(1<<((at-1)%64)) != 0 {
		before := c.words[at*granule-1]
		at -= before
		count += before
		a.unlist(c, at, before)
	}
	if next := at + count; next < uint32(len(c.words)/granule) && c.begins[next/64]&(1<<(next%64)) != 0 {
		after := c.words[next*granule]
		a.unlist(c, next, after)
		count += after
	}
	a.list(c, at, count)
}

// grow adds a chunk that is one free block. The chunk has a sixteenth of a.words, rounded down to a
// power of two, but at least minChunk and at most maxChunk words. If the argument words is larger,
// grow doubles the size until it suffices.
func (a *Arena[T]) grow(words int) {
	size := min(max(minChunk, 1<<(bits.Len(uint(a.words/16+1))-1)), maxChunk)
	for size < words {
		size *= 2
	}
	c := &chunk{
		words: dirty(size), index: uint32(len(a.chunks)),
		begins: make([]uint64, (size/granule+63)/64), ends: make([]uint64, (size/granule+63)/64),
	}
	advise(c.words)
	a.chunks = append(a.chunks, c)
	at, _ := slices.BinarySearchFunc(a.byAddr, c, func(b, c *chunk) int {
		if b.base() < c.base() {
			return -1
		}
		return 1
	})
	a.byAddr = slices.Insert(a.byAddr, at, c)
	a.words += size
	a.list(c, 0, uint32(size/granule))
}

// list puts the free block of granules [at, at+count) of c into the list of its class.
func (a *Arena[T]) list(c *chunk, at, count uint32) {
	class, block := classOf(count), c.index<<chunkBits|at
	next := a.lists[class]
	w := c.words[at*granule:]
	w[0], w[1], w[2] = count, 0, next
	c.words[(at+count)*granule-1] = count
	c.begins[at/64] |= 1 << (at % 64)
	last := at + count - 1
	c.ends[last/64] |= 1 << (last % 64)
	if next != 0 {
		a.block(next)[1] = block + 1
	}
	a.lists[class] = block + 1
	a.filled[class/64] |= 1 << (class % 64)
}

// unlist removes the free block of granules [at, at+count) of c from the list of its class.
func (a *Arena[T]) unlist(c *chunk, at, count uint32) {
	w := c.words[at*granule:]
	before, next := w[1], w[2]
	if next != 0 {
		a.block(next)[1] = before
	}
	if before != 0 {
		a.block(before)[2] = next
	} else {
		class := classOf(count)
		if a.lists[class] = next; next == 0 {
			a.filled[class/64] &^= 1 << (class % 64)
		}
	}
	c.begins[at/64] &^= 1 << (at % 64)
	last := at + count - 1
	c.ends[last/64] &^= 1 << (last % 64)
}

// block returns the words of a chunk from the first word of a free block on. named is the block's
// number + 1.
func (a *Arena[T]) block(named uint32) []uint32 {
	named--
	return a.chunks[named>>chunkBits].words[named&(1<<chunkBits-1)*granule:]
}

// firstFrom returns the lowest class that is at least class and has free blocks, or arenaClasses if
// there is none.
func (a *Arena[T]) firstFrom(class uint32) uint32 {
	if class >= arenaClasses {
		return arenaClasses
	}
	if rest := a.filled[class/64] >> (class % 64); rest != 0 {
		return class + uint32(bits.TrailingZeros64(rest))
	}
	for i := int(class/64) + 1; i < len(a.filled); i++ {
		if a.filled[i] != 0 {
			return uint32(64*i + bits.TrailingZeros64(a.filled[i]))
		}
	}
	return arenaClasses
}

// classOf returns the class of a block of count granules: the highest class whose smallest block has
// at most count granules.
func classOf(count uint32) uint32 {
	if count < 1<<subBits {
		return count
	}
	top := uint32(bits.Len32(count)) - 1
	return (top-subBits+1)<<subBits | count>>(top-subBits)&(1<<subBits-1)
}

func poison(words []uint32) {
	for i := range words {
		words[i] = 0xdeadbeef
	}
}

// asWords returns a view of s as plain words.
func asWords[T Word](s []T) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
}

// dirty returns a slice of words words that are not cleared. make would write zeros to all memory that
// the Go heap has used before. strings.Builder is the standard library's way to get memory without.
func dirty(words int) []uint32 {
	var b strings.Builder
	b.Grow(wordBytes * words)
	b.WriteByte(0)
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.StringData(b.String()))), words)
}
