package router

import "github.com/coppice-llm/coppice/internal/hashtable"

// key is a pair of numbers under which a table stores a third: a worker's id and rank,
// a block's hash and its parent node, a reservation's id and its router.
type key struct {
	a uint64
	b uint32
}

// table maps a key to an int32, at least 0. It allocates only when it grows. The values in
// the hash table are higher by 1, because 0 marks an empty place there.
type table struct{ hashtable.Table }

// noEntry is the result of a lookup without an entry.
const noEntry = -1

// occupy takes an element off free, the list of free elements of all, and returns its index. If
// there is none, it appends one. Free elements are zero.
func occupy[S ~[]T, T any](all *S, free *[]int32) int32 {
	if n := len(*free); n > 0 {
		at := (*free)[n-1]
		*free = (*free)[:n-1]
		return at
	}
	*all = append(*all, *new(T))
	return int32(len(*all) - 1)
}

// newTable returns an empty table. The seed prevents outsiders from choosing keys that collide.
func newTable(seed uint64) table {
	return table{hashtable.New(hashtable.Config{Seed: seed, Paired: true, Keeps: true})}
}

// get returns the value of k, or noEntry.
func (t *table) get(k key) int32 {
	if e := t.Get(k.a, k.b); e != nil {
		return int32(e.To) - 1
	}
	return noEntry
}

// put sets the value of k.
func (t *table) put(k key, value int32) {
	if to := uint32(value + 1); !t.Put(k.a, k.b, to) {
		t.Get(k.a, k.b).To = to
	}
}

// add adds by to the value of k and returns the new value. An absent key counts as 0. A key
// whose value becomes 0 is deleted, so the table can hold counts.
func (t *table) add(k key, by int32) int32 {
	e := t.Get(k.a, k.b)
	switch {
	case e == nil:
		t.Put(k.a, k.b, uint32(by+1))
		return by
	case int32(e.To)-1+by == 0:
		t.Delete(k.a, k.b)
		return 0
	}
	e.To += uint32(by)
	return int32(e.To) - 1
}

// delete removes k and returns its value, or noEntry.
func (t *table) delete(k key) int32 {
	value := t.get(k)
	if value != noEntry {
		t.Delete(k.a, k.b)
	}
	return value
}
