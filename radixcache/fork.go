package radixcache

import (
	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// fewKids is the number of children that a node names itself; more are in a fork. Three
// of 8 bytes are as many as the node's first cache line has room for.
const fewKids = 3

// Sizes of a run of children: it splits above maxRun, and two neighbours are merged when
// together they have at most mergeRun.
const (
	maxRun   = 127 // so that one more fits an allocation of 128 before the split
	mergeRun = 64
)

// fork holds the children of a node that has too many to name them itself, ascending by
// first page, in runs of at most maxRun. No two share a whole first page.
//
// The index finds the child that shares a whole page. If there is none, the runs give
// its sorted neighbours, for a partial page or an insertion. A search in the runs reads
// keys that lie side by side, and then one or two children, whether there are 100
// children or 100,000.
//
// Example with pages of 4: the children 5 5 1 0, 5 5 3 0 and 5 5 3 9 share two tokens.
// Their run has skip 2 and the keys 1 3 3, so a search for 5 5 2 0 compares 2 with the
// keys, and then reads one child to see that it begins with 5 5.
type fork struct {
	index forkIndex
	runs  []run
	keys  []uint32   // the runs' first children's tokens at skip; nil while there is one run
	stem  []kv.Token // first tokens of all children; len is skip, or the only run's skip
	skip  int        // lower bound on the tokens that all children share; valid if keys is not nil
	edge  int        // number of removals since skip was exact: see widenRuns
}

// run is a sequence of neighbouring children.
type run struct {
	kids []kid
	skip int // lower bound on the tokens that all of kids share
}

// kid is a child and its token at index skip of its run, 0 if it ends there. Children
// with equal keys are distinguished by their first pages.
type kid struct {
	key uint32
	id  NodeID
}

// place is where a child is, or would be, below its parent: index i of run r.
type place struct{ r, i int }

// narrow lowers skip to an index at which all present children have the token key.
func (r *run) narrow(skip int, key uint32) {
	for i := range r.kids {
		r.kids[i].key = key
	}
	r.skip = skip
}

// first returns the lowest child.
func (f *fork) first() NodeID { return f.runs[0].kids[0].id }

// last returns the highest child.
func (f *fork) last() NodeID {
	kids := f.runs[len(f.runs)-1].kids
	return kids[len(kids)-1].id
}

// below counts the keys, ascending, that are less than a bound.
func below(keys []uint32, bound uint64) int {
	lo, hi := 0, len(keys)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); uint64(keys[mid]) < bound {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// kidsBelow counts the children, ascending by key, whose key is less than key.
func kidsBelow(kids []kid, key uint32) int {
	lo, hi := 0, len(kids)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); kids[mid].key < key {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// endOf returns the place, in a run, of a key that sorts before or after all its
// children, or equals the first: order is how the children compare to it.
func endOf(r *run, order int) int {
	if order < 0 {
		return len(r.kids)
	}
	return 0
}

// beside returns a child that shares most tokens with rest, and how many, if the keys
// alone decide it: rest begins with the stem, which all children share, and no child
// continues with rest's next token. Then all children share exactly the stem, and the
// nearest lower one wins, or the first. Otherwise ok is false, and the caller reads
// children.
func (f *fork) beside(rest []kv.Token) (id NodeID, shared int, ok bool) {
	shared = len(f.stem)
	if len(rest) <= shared || wide.CommonPrefix(f.stem, rest) < shared {
		return Root, 0, false
	}
	key, r := uint32(rest[shared]), 0
	if f.keys != nil {
		if r = below(f.keys, uint64(key)+1) - 1; r < 0 {
			return f.first(), shared, true
		}
		if f.keys[r] == key {
			return Root, 0, false
		}
	}
	kids := f.runs[r].kids
	if f.runs[r].skip > shared { // the run's children have the same next token, lower than rest's
		return kids[len(kids)-1].id, shared, true
	}
	i := kidsBelow(kids, key)
	if i < len(kids) && kids[i].key == key {
		return Root, 0, false
	}
	return kids[max(i-1, 0)].id, shared, true
}
