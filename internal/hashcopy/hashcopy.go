package hashcopy

import (
	"encoding/binary"
	"math/bits"

	"github.com/zeebo/xxh3"
)

// PieceBytes is the size of the pieces that are hashed one by one.
const PieceBytes = 16 << 10

// Copy copies src to dst and returns a checksum of src. len(src) must be a multiple of PieceBytes, dst
// at least as long as src, and the two must not overlap. The checksum chains the pieces: the first
// piece is hashed by XXH3-64 with the argument seed, each later piece with the hash of the piece before
// as seed, and sum is the hash of the last piece. A call that continues another takes its sum as seed.
// Where the machine supports it and dst is aligned to 64 bytes, the copy bypasses the caches, so use
// Copy for memory that is not read soon.
func Copy(dst, src []byte, seed uint64) (sum uint64) {
	for ; len(src) > 0; dst, src = dst[PieceBytes:], src[PieceBytes:] {
		if kernel != nil && aligned(dst) {
			seed = run(kernel, (*[PieceBytes]byte)(dst), (*[PieceBytes]byte)(src), seed)
		} else {
			seed = plain(dst, src, seed)
		}
	}
	return seed
}

// plain copies the first piece of src to dst without a kernel and returns its XXH3-64 under seed. It
// hashes the piece while it is still in the first-level cache.
func plain(dst, src []byte, seed uint64) uint64 {
	n := copy(dst[:PieceBytes], src[:PieceBytes])
	return xxh3.HashSeed(src[:n], seed)
}

// copyHash is a kernel: it copies the piece src to dst and adds it to acc, the accumulators of XXH3.
// secret is XXH3's secret, derived from the seed. dst must be aligned to 64 bytes.
type copyHash func(acc *[8]uint64, dst, src *[PieceBytes]byte, secret *[192]byte)

// Constants of XXH3 (Cyan4973/xxHash, its specification, "XXH3 Algorithm Overview").
const (
	prime32x1 = 0x9E3779B1
	prime32x2 = 0x85EBCA77
	prime32x3 = 0xC2B2AE3D
	prime64x1 = 0x9E3779B185EBCA87
	prime64x2 = 0xC2B2AE3D27D4EB4F
	prime64x3 = 0x165667B19E3779F9
	prime64x4 = 0x85EBCA77C2B2AE63
	prime64x5 = 0x27D4EB2F165667C5
	avalanche = 0x165667919E3779F9
)

// defaultSecret is the default secret of XXH3 as little-endian words.
var defaultSecret = [24]uint64{
	0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072, 0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82,
	0x8e2443f7744608b8, 0x4c263a81e69035e0, 0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
	0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8, 0xc3ebd33483acc5ea, 0xeb6313faffa081c5,
	0x49daf0b751dd0d17, 0x9e68d429265516d3, 0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af,
}

// run copies the piece src to dst by the kernel k and returns XXH3-64 of the piece: it derives the
// secret from the seed, lets the kernel fill the accumulators and merges them.
func run(k copyHash, dst, src *[PieceBytes]byte, seed uint64) uint64 {
	var secret [192]byte
	for i, w := range defaultSecret {
		if i%2 == 0 {
			w += seed
		} else {
			w -= seed
		}
		binary.LittleEndian.PutUint64(secret[8*i:], w)
	}
	acc := [8]uint64{prime32x3, prime64x1, prime64x2, prime64x3, prime64x4, prime32x2, prime64x5, prime32x1}
	k(&acc, dst, src, &secret)
	size := uint64(PieceBytes)
	h := size * prime64x1
	for i := 0; i < len(acc); i += 2 {
		at := 11 + 8*i
		hi, lo := bits.Mul64(acc[i]^binary.LittleEndian.Uint64(secret[at:]), acc[i+1]^binary.LittleEndian.Uint64(secret[at+8:]))
		h += hi ^ lo
	}
	h ^= h >> 37
	h *= avalanche
	return h ^ h>>32
}
