package missratio

// entry is one tracked block. An entry with hash 0 is empty.
type entry struct {
	hash   uint64
	walk   uint32 // index in the line of the walk that touched it last
	octave uint32 // octave of its depth
}

// table is a hash table of fixed size with open addressing and linear probing, at most half
// full. Sampled blocks have small hashes, so an entry's index is given by the low bits.
type table struct {
	entries []entry
	spare   []entry // scratch memory: the entries that a sweep keeps
	mask    uint64
	n       int
}

func newTable(samples int) table {
	size := 1
	for size < 2*samples {
		size *= 2
	}
	return table{entries: make([]entry, size), spare: make([]entry, 0, samples), mask: uint64(size - 1)}
}

// find returns the entry of hash, or the empty place where it belongs.
func (t *table) find(hash uint64) *entry {
	for at := hash & t.mask; ; at = (at + 1) & t.mask {
		if e := &t.entries[at]; e.hash == hash || e.hash == 0 {
			return e
		}
	}
}

// filter removes the entries for which keep returns false. keep may change an entry that it keeps.
func (t *table) filter(keep func(e *entry) bool) {
	t.spare = t.spare[:0]
	for i := range t.entries {
		if e := &t.entries[i]; e.hash != 0 && keep(e) {
			t.spare = append(t.spare, *e)
		}
	}
	clear(t.entries)
	for _, e := range t.spare {
		*t.find(e.hash) = e
	}
	t.n = len(t.spare)
}

func (t *table) reset() {
	clear(t.entries)
	t.n = 0
}
