package tokenizer

import (
	"encoding/binary"

	"github.com/coppice-llm/coppice/kv"
)

// pieceCache caches the tokens of short pieces that have more than one token. It is
// direct-mapped: each piece can be in a single slot of the table, and a new piece replaces the
// piece there. So the cache has a fixed size, and its contents never change a result.
type pieceCache struct {
	slots []cacheSlot // length cacheSlots, or nil if the cache is off
}

const (
	cacheBits   = 13
	cacheSlots  = 1 << cacheBits // 64 bytes each, a cache line: 512 KiB in all, about a core's L2
	cachedBytes = 24             // longer pieces are not cached
	cachedIDs   = 9              // nor are pieces with more tokens
)

type cacheSlot struct {
	key   pieceKey
	bytes uint8 // length of the piece; 0 if the slot is empty
	n     uint8 // number of tokens
	ids   [cachedIDs]kv.Token
}

// pieceKey is the bytes of a piece, padded with zeros.
type pieceKey [3]uint64

// keyOf packs a piece of at most cachedBytes bytes.
func keyOf(piece string) (k pieceKey) {
	var b [cachedBytes]byte
	copy(b[:], piece)
	for i := range k {
		k[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return k
}

// slot returns the only slot where the piece with key k can be.
func (c *pieceCache) slot(k pieceKey) *cacheSlot {
	h := (k[0]*0x9E3779B97F4A7C15 ^ k[1]) * 0xC2B2AE3D27D4EB4F
	h = (h ^ h>>32 ^ k[2]) * 0x9E3779B97F4A7C15
	return &c.slots[h>>(64-cacheBits)]
}

// encode appends the tokens of piece to dst. It takes them from the cache, or else merges the
// piece and caches its tokens.
func (s *scratch) encode(dst []kv.Token, t *Tokenizer, piece string) []kv.Token {
	if len(piece) > cachedBytes {
		return t.merge(dst, piece, s)
	}
	key := keyOf(piece)
	slot := s.cache.slot(key)
	if slot.key == key && int(slot.bytes) == len(piece) {
		return append(dst, slot.ids[:slot.n]...)
	}
	from := len(dst)
	dst = t.merge(dst, piece, s)
	if ids := dst[from:]; len(ids) <= cachedIDs {
		slot.key, slot.bytes, slot.n = key, uint8(len(piece)), uint8(len(ids))
		copy(slot.ids[:], ids)
	}
	return dst
}

// Encoder encodes like its Tokenizer, with a cache of the tokens of short pieces and with buffers
// for merging long pieces. It takes about 600 KiB, plus 40 bytes for each byte of the longest
// piece so far. Buffers that have grown for a piece of over 262,144 symbols are released after
// the call, so that one text without spaces does not occupy memory permanently. Once its buffers
// have grown, an Encoder allocates only for such pieces and to grow dst. One goroutine at a time
// may use it.
type Encoder struct {
	t         *Tokenizer
	s         scratch
	stepsLeft int
}

// NewEncoder returns an Encoder with an empty cache.
func (t *Tokenizer) NewEncoder() *Encoder {
	return &Encoder{t: t, s: scratch{cache: pieceCache{make([]cacheSlot, cacheSlots)}}}
}

// keptPiece is the longest piece, in symbols, whose buffers an Encoder keeps.
const keptPiece = 256 << 10

// trim releases the buffers if they are larger than a piece of keptPiece symbols needs.
func (s *scratch) trim() {
	if max(cap(s.ids), cap(s.nodes), cap(s.queue)/2) > keptPiece+keptPiece/4 { // growth rounds up
		s.ids, s.nodes, s.queue = nil, nil, nil
	}
}
