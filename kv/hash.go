package kv

import (
	"encoding/binary"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/internal/wide"
)

// LocalHash identifies the tokens of one block. It does not depend on the tokens before.
type LocalHash uint64

// BlockHash identifies a block together with everything before it: equal hashes mean
// equal prefixes (up to collisions of XXH3-64: among a million blocks the chance of any
// is about 3e-8). It is Dynamo's sequence hash, so indexes of both agree.
type BlockHash uint64

// hashSeed is Dynamo's seed for token blocks.
const hashSeed = 1337

// Seed returns the seed for the local hashes of a namespace's blocks: 1337, plus
// XXH3-64(LoRA, seed 0), plus XXH3-64(Salt, seed 1), wrapping. An empty field adds
// nothing. Model never adds anything, because each index serves one model.
func (n Namespace) Seed() uint64 {
	seed := uint64(hashSeed)
	if n.LoRA != "" {
		seed += xxh3.HashString(n.LoRA)
	}
	if n.Salt != "" {
		seed += xxh3.HashStringSeed(n.Salt, 1)
	}
	return seed
}

// HashLocal returns XXH3-64 of one block's tokens, as little-endian u32, under seed: the
// result of Namespace.Seed.
func HashLocal(tokens []Token, seed uint64) LocalHash {
	if littleEndian {
		return LocalHash(xxh3.HashSeed(wide.Bytes(tokens), seed))
	}
	return LocalHash(xxh3.HashSeed(AppendTokens(nil, tokens), seed))
}

// littleEndian is true if this machine stores a Token as the bytes that HashLocal hashes,
// so that HashLocal needs no copy.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// HashLocalMedia is HashLocal for a block with media. It sorts media, the hashes of the
// block's media without duplicates, in place, and hashes them after the tokens, as
// little-endian u64. buf is scratch memory; the second result is buf, maybe grown, for the
// next call.
func HashLocalMedia(tokens []Token, media []uint64, seed uint64, buf []byte) (LocalHash, []byte) {
	buf = AppendTokens(buf[:0], tokens)
	slices.Sort(media)
	for _, m := range media {
		buf = binary.LittleEndian.AppendUint64(buf, m)
	}
	return LocalHash(xxh3.HashSeed(buf, seed)), buf
}

// Chain extends the hash of a prefix by one block: XXH3-64 over the parent's hash and
// the block's local hash, two little-endian u64, under seed 1337. The result depends on the
// namespace only through the local hashes: Chain uses the same seed for all namespaces.
func Chain(parent BlockHash, local LocalHash) BlockHash {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], uint64(parent))
	binary.LittleEndian.PutUint64(b[8:], uint64(local))
	return BlockHash(xxh3.HashSeed(b[:], hashSeed))
}

// Hasher hashes the blocks of one sequence in order. The BlockHash of the first block is
// its local hash. That of each later block is Chain of the BlockHash before and its local hash.
type Hasher struct {
	seed        uint64
	blockTokens int
	last        BlockHash
	started     bool
	buf         []byte
}

// NewHasher returns a Hasher that stands before the first block of a sequence in ns.
// blockTokens is the length of every block.
func NewHasher(ns Namespace, blockTokens int) *Hasher {
	return &Hasher{seed: ns.Seed(), blockTokens: blockTokens}
}

// Resume makes the next call of Next hash the block after the one with the hash last.
func (h *Hasher) Resume(last BlockHash) { h.last, h.started = last, true }

// Next returns the hashes of the next block of the sequence. It panics if the block's length
// is not that given to NewHasher: only full blocks have hashes.
func (h *Hasher) Next(block []Token) (BlockHash, LocalHash) { return h.NextMedia(block, nil) }

// NextMedia is Next for a block with media; [HashLocalMedia] describes media.
func (h *Hasher) NextMedia(block []Token, media []uint64) (BlockHash, LocalHash) {
	if len(block) != h.blockTokens {
		panic("kv: Hasher.Next: block is not full")
	}
	var local LocalHash
	if len(media) == 0 {
		local = HashLocal(block, h.seed)
	} else {
		local, h.buf = HashLocalMedia(block, media, h.seed, h.buf)
	}
	if h.started {
		h.last = Chain(h.last, local)
	} else {
		h.last, h.started = BlockHash(local), true
	}
	return h.last, local
}
