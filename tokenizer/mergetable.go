package tokenizer

import (
	"math/bits"

	"github.com/coppice-llm/coppice/kv"
)

// mergeTable maps pairs to merges: open addressing with linear probing, at most half full.
// Merging spends most of its time here, and Go's map takes twice as long.
type mergeTable struct {
	slots []mergeSlot // a power of two; rank noMerge if empty
	shift int
}

type mergeSlot struct {
	pair  pair
	merge merge
}

// newMergeTable returns a table with room for n pairs.
func newMergeTable(n int) mergeTable {
	log := max(bits.Len(uint(2*n)), 4)
	m := mergeTable{slots: make([]mergeSlot, 1<<log), shift: 64 - log}
	for i := range m.slots {
		m.slots[i].merge.rank = noMerge
	}
	return m
}

// at returns the slot of p, or the empty one where it belongs.
func (m *mergeTable) at(p pair) *mergeSlot {
	mask := len(m.slots) - 1
	// Fibonacci hashing (Knuth, The Art of Computer Programming, 6.4).
	for i := int(uint64(p) * 0x9E3779B97F4A7C15 >> m.shift); ; i++ {
		slot := &m.slots[i&mask]
		if slot.pair == p || slot.merge.rank == noMerge {
			return slot
		}
	}
}

// put sets the merge of p to what, in place of an earlier merge of p. The table must have an
// empty slot.
func (m *mergeTable) put(p pair, what merge) {
	*m.at(p) = mergeSlot{p, what}
}

// lookup returns the merge of the tokens left and right; its rank is noMerge if they do not
// merge.
func (t *Tokenizer) lookup(left, right kv.Token) merge {
	p := pairOf(left, right)
	if slot := t.merges.at(p); slot.pair == p {
		return slot.merge
	}
	return merge{rank: noMerge}
}
