package mempool

import "github.com/zeebo/xxh3"

// sumPiece is how much is copied and hashed at a time, while it is in the nearest cache:
// so a checksum costs a copy little more than its instructions.
const sumPiece = 16 << 10

// Sum is the checksum of an extent's pages: the XXH3-64 of their bytes in pieces of 16 KiB,
// the seed of each being the checksum of those before it, from 0.
func Sum(payload []byte) (sum uint64) { return sumFrom(0, payload) }

// sumFrom goes on with a sum of whole pieces.
func sumFrom(sum uint64, payload []byte) uint64 {
	for len(payload) > 0 {
		n := min(sumPiece, len(payload))
		sum = xxh3.HashSeed(payload[:n], sum)
		payload = payload[n:]
	}
	return sum
}

// copyPiece is how much Gather and Scatter copy at a time: long enough for a processor's
// way to copy without reading what it writes over, short enough for the second cache.
const copyPiece = 4 * sumPiece

// Gather copies pages to dst, one after another, and returns the Sum of their bytes.
func Gather(dst []byte, pages [][]byte) (sum uint64) {
	if len(pages) > 0 && len(pages[0])%sumPiece != 0 {
		at := 0
		for _, p := range pages {
			at += copy(dst[at:], p)
		}
		return Sum(dst[:at])
	}
	for _, p := range pages {
		for len(p) > 0 { // hashed first, as what is copied may pass the caches by
			n := min(copyPiece, len(p))
			sum = sumFrom(sum, p[:n])
			copy(dst[:n], p)
			dst, p = dst[n:], p[n:]
		}
	}
	return sum
}

// Scatter copies the first bytes of payload to pages and returns the Sum of all of it. The
// pages have what it is the sum of, so a caller looks at them only if it is right.
func Scatter(pages [][]byte, payload []byte) (sum uint64) {
	page, at := 0, 0
	for len(payload) > 0 {
		piece := payload[:min(copyPiece, len(payload))]
		payload = payload[len(piece):]
		sum = sumFrom(sum, piece)
		for len(piece) > 0 && page < len(pages) {
			n := copy(pages[page][at:], piece)
			if piece, at = piece[n:], at+n; at == len(pages[page]) {
				page, at = page+1, 0
			}
		}
	}
	return sum
}
