// Package hashtable implements a hash table of entries of 16 bytes: a number of 64 bits and one of 32
// bits lead to a value of 32 bits. It owns the entries and nothing else. A Go map rehashes now and
// then under steady churn, which would show in the latency of a choice of a worker.
//
//	t := hashtable.New(hashtable.Config{Seed: seed, Paired: true})
//	t.Put(key, from, 7)     // true: it was absent
//	t.Get(key, from).To = 8 // nil if it is absent
//	t.Delete(key, from)
package hashtable

import "math/bits"

// Entry is an entry of a [Table].
type Entry struct {
	Key  uint64
	From uint32
	To   uint32 // not 0, which marks an empty place
}

// Config says how a Table works.
type Config struct {
	Seed   uint64 // varies the places of keys, so that outsiders can't choose keys that collide
	Paired bool   // From is part of the key
	Keeps  bool   // the table never shrinks, so it does not allocate in steady state
}

// Table is a hash table with open addressing. It is divided into segments that grow separately, so
// that no insertion has to wait for the growth of a large table: if a table of 32 million entries grew
// at once, its writer would have to wait for the copy of 512 MB. A segment of it is 8 MB.
type Table struct {
	segments [64]segment
	seed     uint64
	paired   uint32 // mask of the bits of From that are part of the key: all or none
	keeps    bool
	n        int
}

// segment is one part of a table. Its array is at most 3/4 full, and at least 1/8 unless the table
// keeps it, or it has leastEntries places.
type segment struct {
	entries []Entry
	used    int
}

// leastEntries is the number of places of the smallest segment. A segment grows when it would be
// more than 3/4 full, and shrinks when it is less than 1/8 full.
const leastEntries = 8

// New returns an empty table.
func New(cfg Config) Table {
	t := Table{seed: cfg.Seed ^ 0x9e3779b97f4a7c15, keeps: cfg.Keeps}
	if cfg.Paired {
		t.paired = ^uint32(0)
	}
	return t
}

// Len returns the number of entries.
func (t *Table) Len() int { return t.n }

// mix spreads a key over 64 bits.
func (t *Table) mix(key uint64, from uint32) uint64 {
	// One 64x64 to 128 bit multiplication with both halves combined, as in wyhash. If the table is
	// not paired, from has no influence.
	hi, lo := bits.Mul64(key^t.seed, 0xa0761d6478bd642f^uint64(from&t.paired)<<1)
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

// Get returns the entry of a key, or nil if there is none. The entry is valid until the table
// changes. Its To may be set, to another value than 0.
func (t *Table) Get(key uint64, from uint32) *Entry {
	mixed := t.mix(key, from)
	entries := t.segments[mixed%64].entries
	if len(entries) == 0 {
		return nil
	}
	for i := home(mixed, len(entries)); ; i = after(i, len(entries)) {
		e := &entries[i]
		if e.To == 0 {
			return nil
		}
		if e.Key == key && (e.From^from)&t.paired == 0 {
			return e
		}
	}
}

// Put adds an entry. If the key exists, it changes nothing and returns false.
func (t *Table) Put(key uint64, from uint32, to uint32) bool {
	mixed := t.mix(key, from)
	s := &t.segments[mixed%64]
	// At most 3/4 of the places are used, so every probe ends at an empty one. A resize moves
	// one segment: about 1/64 of the table.
	if 4*(s.used+1) > 3*len(s.entries) {
		t.resize(s, max(leastEntries, 2*len(s.entries)))
	}
	for i := home(mixed, len(s.entries)); ; i = after(i, len(s.entries)) {
		e := &s.entries[i]
		if e.To == 0 {
			*e = Entry{key, from, to}
			s.used++
			t.n++
			return true
		}
		if e.Key == key && (e.From^from)&t.paired == 0 {
			return false
		}
	}
}

// Delete removes the entry of a key, and moves entries after it back so that lookups still find
// them. It panics if the key does not exist.
//
// Example: entries p, q and r have the home 5 and are in the places 5, 6 and 7. When p is
// removed, q moves to 5 and r to 6; otherwise a lookup of r, which starts at 5, would stop at
// the empty place.
func (t *Table) Delete(key uint64, from uint32) {
	mixed := t.mix(key, from)
	s := &t.segments[mixed%64]
	n := len(s.entries)
	hole := home(mixed, n)
	for e := &s.entries[hole]; e.Key != key || (e.From^from)&t.paired != 0 || e.To == 0; e = &s.entries[hole] {
		if e.To == 0 {
			panic("hashtable: an entry to be removed is not in its table")
		}
		hole = after(hole, n)
	}
	// Entries after the empty place (hole) that were displaced past it move back, so that lookups need no
	// tombstones.
	for i := after(hole, n); s.entries[i].To != 0; i = after(i, n) {
		// The entry at i may move to hole unless its home is after hole and at or before i.
		h := home(t.mix(s.entries[i].Key, s.entries[i].From), n)
		if h <= hole && (hole < i || h > i) || hole < i && h > i {
			s.entries[hole] = s.entries[i]
			hole = i
		}
	}
	s.entries[hole] = Entry{}
	t.n--
	if s.used--; 8*s.used < n && n > leastEntries && !t.keeps {
		t.resize(s, max(leastEntries, n/2))
	}
}

// resize moves the entries of segment s to a new array of n places.
func (t *Table) resize(s *segment, n int) {
	old := s.entries
	s.entries = make([]Entry, n)
	for _, e := range old {
		if e.To == 0 {
			continue
		}
		i := home(t.mix(e.Key, e.From), n)
		for s.entries[i].To != 0 {
			i = after(i, n)
		}
		s.entries[i] = e
	}
}
