package router

// key is a pair of numbers under which a table stores a third: a worker's id and rank,
// a block's hash and its parent node, a reservation's id and its router.
type key struct {
	a uint64
	b uint32
}

// table maps a key to an int32, at least 0. It allocates only when it grows; a Go map
// also rehashes now and then under steady churn, which would show in the latency of a
// choice. It uses linear probing at a load of at most 3/4. A deletion shifts later
// entries back, so there are no tombstones.
type table struct {
	seed    uint64 // prevents outsiders from choosing keys that collide
	entries []entry
	n       int
}

type entry struct {
	key
	value int32 // noEntry: the entry is free
}

// noEntry is the value of a free entry, and the result of a lookup without one.
const noEntry = -1

// newTable returns a table that holds room keys before it grows. See table for seed.
func newTable(seed uint64, room int) table {
	t := table{seed: seed}
	size := 16
	for size*3/4 < room {
		size *= 2
	}
	t.entries = emptyEntries(size)
	return t
}

// emptyEntries returns n free entries.
func emptyEntries(n int) []entry {
	entries := make([]entry, n)
	for i := range entries {
		entries[i].value = noEntry
	}
	return entries
}

// home returns the index at which the search for a key begins.
func (t *table) home(k key) int {
	return int(mix(k.a^t.seed, uint64(k.b)) & uint64(len(t.entries)-1))
}

// at returns the index of k, or of the free entry where k would be.
func (t *table) at(k key) int {
	i := t.home(k)
	for t.entries[i].value != noEntry && t.entries[i].key != k {
		i = (i + 1) & (len(t.entries) - 1)
	}
	return i
}

// get returns the value of k, or noEntry.
func (t *table) get(k key) int32 { return t.entries[t.at(k)].value }

// put sets the value of k.
func (t *table) put(k key, value int32) {
	i := t.at(k)
	if t.entries[i].value == noEntry {
		if t.n++; t.n > len(t.entries)*3/4 {
			t.grow()
			i = t.at(k)
		}
	}
	t.entries[i] = entry{k, value}
}

// add adds by to the value of k and returns the new value. An absent key counts as 0. A key
// whose value becomes 0 is deleted, so the table can hold counts.
func (t *table) add(k key, by int32) int32 {
	i := t.at(k)
	e := &t.entries[i]
	if e.value == noEntry {
		t.put(k, by)
		return by
	}
	if e.value += by; e.value == 0 {
		t.remove(i)
		return 0
	}
	return e.value
}

// delete removes k and returns its value, or noEntry.
func (t *table) delete(k key) int32 {
	i := t.at(k)
	value := t.entries[i].value
	if value != noEntry {
		t.remove(i)
	}
	return value
}

// remove frees entry i and closes the gap: each following entry up to the next free one moves
// into the gap, unless that would put it before its home.
func (t *table) remove(i int) {
	mask := len(t.entries) - 1
	t.n--
	for j := (i + 1) & mask; t.entries[j].value != noEntry; j = (j + 1) & mask {
		if home := t.home(t.entries[j].key); (j-home)&mask >= (j-i)&mask {
			t.entries[i] = t.entries[j]
			i = j
		}
	}
	t.entries[i].value = noEntry
}

// grow doubles the entries and inserts all keys again.
func (t *table) grow() {
	old := t.entries
	t.entries = emptyEntries(2 * len(old))
	for _, e := range old {
		if e.value != noEntry {
			t.entries[t.at(e.key)] = e
		}
	}
}
