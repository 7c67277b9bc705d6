// Package checksum owns the checksum of an extent's bytes ([mempool.Done].Sum), which every store computes, and copies of
// pages that compute it on the way. It has no state, and any goroutine may call it.
//
//	header.Sum = checksum.Gather(buf, op.Pages)      // a store writes an extent
//	ok := checksum.Scatter(op.Pages, buf) == header.Sum // and reads it
package checksum

import (
	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/internal/hashcopy"
)

// sumPiece is the number of bytes that are copied and hashed at a time.
const sumPiece = hashcopy.PieceBytes

// Sum returns the checksum of payload, the bytes of an extent's pages. It hashes payload by
// XXH3-64 in pieces of 16 KiB: the seed of the first piece is 0, that of each later piece is
// the hash of the piece before, and the last hash is the result. The pieces allow copying
// and hashing in one pass.
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
	// If pages have no whole number of pieces, some piece has bytes of two pages. Then copy
	// all pages first and hash them afterwards.
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

// Scatter copies payload to pages, one after another, as far as the pages have room. It
// returns the Sum of all of payload. The caller must compare the sum before it uses the
// pages, because Scatter writes them before the sum is known.
func Scatter(pages [][]byte, payload []byte) (sum uint64) {
	// Copy and hash pages of whole pieces in one pass. Hash and copy the remaining payload
	// piece by piece: a piece may have bytes of several pages, or bytes beyond the last page.
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
