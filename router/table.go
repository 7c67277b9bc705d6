package router

// key is two numbers under which a table keeps a third: a worker's id and rank, a
// block's hash and its parent node, and so on.
type key struct {
	a uint64
	b uint32
}

// table is a map from key to int32 that allocates only when it grows: a Go map
// rehashes at times under a steady churn. Linear probing; a deletion shifts back
// what follows, so there are no tombstones. There are no negative values.
type table struct {
	seed    uint64 // so that outsiders cannot choose keys that collide
	entries []entry
	n       int
}

type entry struct {
	key
	value int32 // noEntry where there is none
}

const noEntry = -1

func newTable(seed uint64, room int) table {
	t := table{seed: seed}
	size := 16
	for size*3/4 < room {
		size *= 2
	}
	t.entries = emptyEntries(size)
	return t
}

func emptyEntries(n int) []entry {
	entries := make([]entry, n)
	for i := range entries {
		entries[i].value = noEntry
	}
	return entries
}

func (t *table) home(k key) int {
	return int(mix(k.a^t.seed, uint64(k.b)) & uint64(len(t.entries)-1))
}

// at is where k is, or where it would be.
func (t *table) at(k key) int {
	i := t.home(k)
	for t.entries[i].value != noEntry && t.entries[i].key != k {
		i = (i + 1) & (len(t.entries) - 1)
	}
	return i
}

// get is the value of k, or noEntry.
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

// add adds to the value of k, which starts at 0 and is deleted when it comes back
// there, and returns the new value.
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

// delete deletes k and returns its value, or noEntry.
func (t *table) delete(k key) int32 {
	i := t.at(k)
	value := t.entries[i].value
	if value != noEntry {
		t.remove(i)
	}
	return value
}

// remove empties entry i and closes the gap, so that all that follow are still
// found from their homes on.
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

func (t *table) grow() {
	old := t.entries
	t.entries = emptyEntries(2 * len(old))
	for _, e := range old {
		if e.value != noEntry {
			t.entries[t.at(e.key)] = e
		}
	}
}
