package mempool

import (
	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/internal/hashcopy"
)

// sumPiece is the number of bytes that are copied and hashed at a time.
const sumPiece = hashcopy.PieceBytes

// Sum returns the checksum of an extent's pages: the XXH3-64 of their bytes in pieces
// of 16 KiB, where the seed of each piece is the checksum of the pieces before it, from
// 0. The pieces allow copying and hashing in one pass.
func Sum(payload []byte) (sum uint64) {
	for len(payload) > 0 {
		n := min(sumPiece, len(payload))
		sum = xxh3.HashSeed(payload[:n], sum)
		payload = payload[n:]
	}
	return sum
}

// Gather copies pages to dst, one after another, and returns the Sum of their bytes.
func Gather(dst []byte, pages [][]byte) (sum uint64) {
	// Pages that are not multiples of a piece would cut pieces in two: they are copied first
	// and hashed afterwards.
	if len(pages) > 0 && len(pages[0])%sumPiece != 0 {
		at := 0
		for _, p := range pages {
			at += copy(dst[at:], p)
		}
		return Sum(dst[:at])
	}
	for _, p := range pages {
		sum = hashcopy.Copy(dst, p, sum)
		dst = dst[len(p):]
	}
	return sum
}

// Scatter copies the first bytes of payload to pages and returns the Sum of all of
// payload. The caller compares it before it uses the pages: they are written before the
// sum is known.
func Scatter(pages [][]byte, payload []byte) (sum uint64) {
	// Pages of whole pieces are copied and hashed in one pass. The rest goes piece by piece:
	// a piece may cover parts of several pages, or more than the pages ask for.
	for len(pages) > 0 && len(pages[0])%sumPiece == 0 && len(pages[0]) <= len(payload) {
		n := len(pages[0])
		sum = hashcopy.Copy(pages[0], payload[:n], sum)
		pages, payload = pages[1:], payload[n:]
	}
	page, at := 0, 0
	for len(payload) > 0 {
		piece := payload[:min(sumPiece, len(payload))]
		payload = payload[len(piece):]
		for left := piece; len(left) > 0 && page < len(pages); {
			n := copy(pages[page][at:], left)
			if left, at = left[n:], at+n; at == len(pages[page]) {
				page, at = page+1, 0
			}
		}
		sum = xxh3.HashSeed(piece, sum)
	}
	return sum
}
