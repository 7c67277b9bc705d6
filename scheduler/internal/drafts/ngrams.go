package drafts

import (
	"math/bits"

	"github.com/coppice-llm/coppice/kv"
)

const (
	// least is the number of tokens that must agree for a guess. Two would agree nearly
	// everywhere in a text, and say little.
	least = 3
	// longest is the length from which matches count as equal.
	longest = 32
	// tries bounds the places that find compares, so that a text of one repeated token costs no
	// more than others. The latest places come first.
	tries = 16
	// enough is the number of longest matches after which find looks for no more.
	enough = 4
	// window is the number of last tokens of a text in which places are found: 8 bytes for each,
	// rounded up to a power of two, so at most 1 MiB for a sequence.
	window = 1 << 17
)

// ngrams knows where the last tokens of a text occurred before: chains of places with equal
// hashes, as in LZ77 compressors (zlib, deflate.c: head and prev). A place is a position at which a
// token follows; its n-gram are the least tokens before it. The text itself stays with the caller.
type ngrams struct {
	heads []uint32 // by hash: the latest place; 0: none, as no n-gram ends there
	prev  []uint32 // by place modulo len: the place before with that hash
	upto  int      // places up to here are added
}

// newNgrams returns an index without places for a text of that length, in tokens.
func newNgrams(tokens int) ngrams {
	size := 1 << bits.Len(uint(min(max(tokens, 64), window)-1))
	return ngrams{heads: make([]uint32, size), prev: make([]uint32, size)}
}

// add adds the places of text up to last, at which a token must follow: last < len(text). Places
// that were added before stay; text must begin with the same tokens as then. It overwrites places
// more than len(prev) tokens before last. Cost: some 10 ns a place.
func (x *ngrams) add(text []kv.Token, last int) {
	for p := max(x.upto+1, least); p <= last; p++ {
		h := x.hash(text[p-least : p])
		x.prev[p&(len(x.prev)-1)] = x.heads[h]
		x.heads[h] = uint32(p)
	}
	x.upto = max(x.upto, last)
}

// hash returns the index in heads for the least tokens of gram.
func (x *ngrams) hash(gram []kv.Token) uint32 {
	_ = gram[least-1]
	h := (uint64(gram[0])*0x9e3779b97f4a7c15+uint64(gram[1]))*0xbf58476d1ce4e5b9 + uint64(gram[2])
	h *= 0x94d049bb133111eb
	return uint32(h >> (64 - bits.Len(uint(len(x.heads)-1))))
}

// place is a position in a text, with the length of the match before it.
type place struct{ at, length int }

// find returns the places in text, which the index was made of, that follow the last tokens of suffix, the
// latest first: at most tries, with matches of at least least tokens. Lengths count up to longest. It
// appends them to dst.
func (x *ngrams) find(text, suffix []kv.Token, dst []place) []place {
	if len(suffix) < least {
		return dst
	}
	p, full := int(x.heads[x.hash(suffix[len(suffix)-least:])]), 0
	for range tries {
		if full == enough || p == 0 || p+len(x.prev) <= x.upto { // enough, none, or overwritten
			break
		}
		if n := agree(text[:p], suffix); n >= least { // else another gram with that hash
			dst = append(dst, place{p, n})
			full += n / longest
		}
		older := int(x.prev[p&(len(x.prev)-1)])
		if older >= p { // the entry was overwritten by a later place
			break
		}
		p = older
	}
	return dst
}

// longestOf returns the index of the place with the longest match, of equal ones the nearest to near; -1 if
// there is none.
func longestOf(places []place, near int) int {
	best := -1
	for i, p := range places {
		if best < 0 || p.length > places[best].length || p.length == places[best].length && abs(p.at-near) < abs(places[best].at-near) {
			best = i
		}
	}
	return best
}

// agree returns how many of their last tokens a and b have in common, at most longest.
func agree(a, b []kv.Token) int {
	n := 0
	for n < min(len(a), len(b), longest) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}
