package kvindex

import "math/bits"

// entry is an entry of a [table], 16 bytes. to is a node other than the root; root (0) marks an
// empty place. from is a block's depth in the table of blocks, and the parent node in the table
// of edges.
type entry struct {
	key  uint64 // a block hash, or a local hash
	from uint32
	to   nodeID
}

// table is a hash table with open addressing. It is divided into segments that grow separately,
// so that no insertion has to wait for the growth of a large table. There are two tables.
// Index.blocks finds a block by its hash; from is its depth and not part of the key. Index.edges
// finds a child by its first local hash and its parent.
//
// If a table of 32 million entries grew at once, its writer would have to wait for the copy of
// 512 MB. A segment of it is 8 MB.
type table struct {
	segments [64]segment
	seed     uint64
	keyed    uint32 // mask of the bits of from that are part of the key: all or none
}

// segment is one part of a table. Its array is between 1/8 and 3/4 full, or has leastEntries
// places.
type segment struct {
	entries []entry
	used    int
}

// leastEntries is the number of places of the smallest segment. A segment grows when it would be
// more than 3/4 full, and shrinks when it is less than 1/8 full.
const leastEntries = 8

// newTable returns an empty table. fromIsKey makes from a part of the key. seed varies the
// places of keys.
func newTable(seed uint64, fromIsKey bool) table {
	t := table{seed: seed ^ 0x9e3779b97f4a7c15}
	if fromIsKey {
		t.keyed = ^uint32(0)
	}
	return t
}

// mix spreads a key over 64 bits.
func (t *table) mix(key uint64, from uint32) uint64 {
	// One 64x64 to 128 bit multiplication with both halves combined, as in wyhash. For the table
	// of blocks, keyed is 0 and from has no influence.
	hi, lo := bits.Mul64(key^t.seed, 0xa0761d6478bd642f^uint64(from&t.keyed)<<1)
	return hi ^ lo
}

// home returns the place, 0 to n-1, at which the search for an entry begins. mixed is the result
// of mix.
func home(mixed uint64, n int) int {
	// The upper bits choose the place, scaled to [0, n) without a division. The segment was
	// chosen by the lower bits, so the two are independent.
	hi, _ := bits.Mul64(mixed, uint64(n))
	return int(hi)
}

// after returns the place after i of n places; place 0 comes after the last.
func after(i, n int) int {
	if i++; i < n {
		return i
	}
	return 0
}

// get returns the entry of a key, or nil if there is none. The entry is valid until the table
// changes.
func (t *table) get(key uint64, from uint32) *entry {
	mixed := t.mix(key, from)
	entries := t.segments[mixed%64].entries
	if len(entries) == 0 {
		return nil
	}
	for i := home(mixed, len(entries)); ; i = after(i, len(entries)) {
		e := &entries[i]
		if e.to == root {
			return nil
		}
		if e.key == key && (e.from^from)&t.keyed == 0 {
			return e
		}
	}
}

// put adds an entry. If the key exists, it changes nothing and returns false.
func (t *table) put(key uint64, from uint32, to nodeID) bool {
	mixed := t.mix(key, from)
	s := &t.segments[mixed%64]
	// At most 3/4 of the places are used, so every probe ends at an empty one. A resize moves
	// one segment: about 1/64 of the table.
	if 4*(s.used+1) > 3*len(s.entries) {
		t.resize(s, max(leastEntries, 2*len(s.entries)))
	}
	for i := home(mixed, len(s.entries)); ; i = after(i, len(s.entries)) {
		e := &s.entries[i]
		if e.to == root {
			*e = entry{key, from, to}
			s.used++
			return true
		}
		if e.key == key && (e.from^from)&t.keyed == 0 {
			return false
		}
	}
}

// cut removes the entry of a key, and moves entries after it back so that lookups still find
// them. It panics if the key does not exist.
//
// Example: entries p, q and r have the home 5 and are in the places 5, 6 and 7. When p is
// removed, q moves to 5 and r to 6; otherwise a lookup of r, which starts at 5, would stop at
// the empty place.
func (t *table) cut(key uint64, from uint32) {
	mixed := t.mix(key, from)
	s := &t.segments[mixed%64]
	n := len(s.entries)
	hole := home(mixed, n)
	for e := &s.entries[hole]; e.key != key || (e.from^from)&t.keyed != 0; e = &s.entries[hole] {
		if e.to == root {
			panic("kvindex: an entry to be removed is not in its table")
		}
		hole = after(hole, n)
	}
	// Entries after the empty place (hole) that were displaced past it move back, so that lookups need no
	// tombstones.
	for i := after(hole, n); s.entries[i].to != root; i = after(i, n) {
		// The entry at i may move to hole unless its home is after hole and at or before i.
		h := home(t.mix(s.entries[i].key, s.entries[i].from), n)
		if h <= hole && (hole < i || h > i) || hole < i && h > i {
			s.entries[hole] = s.entries[i]
			hole = i
		}
	}
	s.entries[hole] = entry{}
	if s.used--; 8*s.used < n && n > leastEntries {
		t.resize(s, max(leastEntries, n/2))
	}
}

// resize moves the entries of segment s to a new array of n places.
func (t *table) resize(s *segment, n int) {
	old := s.entries
	s.entries = make([]entry, n)
	for _, e := range old {
		if e.to == root {
			continue
		}
		i := home(t.mix(e.key, e.from), n)
		for s.entries[i].to != root {
			i = after(i, n)
		}
		s.entries[i] = e
	}
}

// len returns the number of entries.
func (t *table) len() int {
	n := 0
	for i := range t.segments {
		n += t.segments[i].used
	}
	return n
}
