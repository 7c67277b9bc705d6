package radixcache

import (
	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// fewKids is how many children a node names itself; more stand in a fork.
const fewKids = 3

// Sizes of a run of children: it splits above the one, and two neighbours
// become one again when together they have no more than the other.
const (
	maxRun   = 127 // so that one more fits an allocation of 128 before the split
	mergeRun = 64
)

// fork holds the children of a node that has too many to name them itself,
// ascending by first page, in runs of at most maxRun. No two share a whole first page. The index finds a child;
// where there is none the runs tell its neighbours. A search in them reads the keys
// of a run, which lie side by side, and then the one or two children that it
// found: among 100,000 as among 100.
type fork struct {
	index forkIndex
	runs  []run
	keys  []uint32   // of the runs' first children, as in run.kids; nil while there is one run
	stem  []kv.Token // the first tokens of all children: skip of them, or as many as the only run's skip says
	skip  int        // tokens that all children share, at least; valid while keys is
	edge  int        // first or last children removed since skip was exact
}

// run is a stretch of siblings.
type run struct {
	kids []kid
	skip int // tokens that all of kids share, at least
}

// kid is a child and its token at run.skip, 0 if it ends there. Equal keys are
// told apart by the children's first pages.
type kid struct {
	key uint32
	id  NodeID
}

// place is where a child stands, or would stand, below its parent: index i of run r.
type place struct{ r, i int }

// narrow lowers skip to where all present children have the token key.
func (r *run) narrow(skip int, key uint32) {
	for i := range r.kids {
		r.kids[i].key = key
	}
	r.skip = skip
}

func (f *fork) first() NodeID { return f.runs[0].kids[0].id }

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

// kidsBelow is that for the keys of children.
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

// endOf is where a key stands to which all children of a run stand in one
// order, or the first of them is equal.
func endOf(r *run, order int) int {
	if order < 0 {
		return len(r.kids)
	}
	return 0
}

// beside is a child that shares most tokens with rest, and how many, if the keys
// alone tell: rest begins with all that the children share, and none goes on as
// it does. Then all share equally much, and the nearest lower one is named.
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
	if f.runs[r].skip > shared { // all of the run go on alike, and lower than rest
		return kids[len(kids)-1].id, shared, true
	}
	i := kidsBelow(kids, key)
	if i < len(kids) && kids[i].key == key {
		return Root, 0, false
	}
	return kids[max(i-1, 0)].id, shared, true
}
