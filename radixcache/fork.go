package radixcache

import (
	"fmt"
	"iter"
	"slices"
	"sort"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

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

// compare orders a child's first page against key, at most a page, and returns
// how many tokens they share. Shorter is lower.
func (c *Cache) compare(id NodeID, key []kv.Token) (order, shared int) {
	first := c.firstPage(id)
	n := wide.CommonPrefix(first, key)
	switch {
	case n == len(first) && n == len(key):
		return 0, n
	case n == len(first), n < len(key) && first[n] < key[n]:
		return -1, n
	}
	return 1, n
}

// keyOf is the token at skip of a child.
func (c *Cache) keyOf(id NodeID, skip int) uint32 {
	if tokens := c.nodes[id].tokens.Slice(); skip < len(tokens) {
		return uint32(tokens[skip])
	}
	return 0
}

// find returns where the first page of key belongs below a node, and whether
// the child there has that very page. A key shorter than a page is found if a
// tail leaf is equal, and stands before all children that start with it.
func (c *Cache) find(parent NodeID, key []kv.Token) (place, bool) {
	key = key[:min(c.cfg.PageTokens, len(key))]
	n := &c.nodes[parent]
	if n.fork == nil {
		if n.count == 0 {
			return place{}, false
		}
		i, order, _ := c.findIn(&run{skip: int(n.skip), kids: n.few[:n.count]}, key, 0)
		return place{i: i}, order == 0
	}
	f := n.fork
	if len(f.runs) == 1 {
		i, order, _ := c.findIn(&f.runs[0], key, 0)
		return place{i: i}, order == 0
	}
	need := min(f.skip, len(key))
	r, order, shared := c.findRun(f, key)
	if shared >= need {
		var i int
		if i, order, shared = c.findIn(&f.runs[r], key, need); shared >= need {
			return place{r, i}, order == 0
		}
	}
	// key parts from what all children share: it stands at one of the ends.
	if order > 0 {
		return place{}, false
	}
	last := len(f.runs) - 1
	return place{last, len(f.runs[last].kids)}, false
}

// findRun returns the last run that starts at or below key, or 0. If it sees
// that key does not share f.skip tokens with the children, order and shared
// tell how they stand to it; else shared is at least that, or all of key.
func (c *Cache) findRun(f *fork, key []kv.Token) (r, order, shared int) {
	if len(key) <= f.skip {
		order, shared = c.compare(f.first(), key)
		return 0, order, shared
	}
	k := uint32(key[f.skip])
	hi := sort.Search(len(f.keys), func(i int) bool { return f.keys[i] > k })
	lo := hi
	if hi > 0 && f.keys[hi-1] == k {
		lo = sort.Search(hi, func(i int) bool { return f.keys[i] >= k })
	}
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if order, shared = c.compare(f.runs[mid].kids[0].id, key); shared < f.skip {
			return 0, order, shared
		}
		if order <= 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return max(0, lo-1), 0, f.skip
}

// findIn returns the first child of a run that is not below key, and by the
// last comparison made how that child stands to it (0: equal) and what it
// shares. Keys are trusted first: only if key parts from what all the children
// share, in the run or need tokens deep, is that seen by the comparison.
func (c *Cache) findIn(r *run, key []kv.Token, need int) (i, order, shared int) {
	n := len(r.kids)
	if len(key) <= r.skip {
		order, shared = c.compare(r.kids[0].id, key)
		return endOf(r, order), order, shared
	}
	k := uint32(key[r.skip])
	lo, end := 0, n
	for lo < end {
		if mid := int(uint(lo+end) >> 1); r.kids[mid].key < k {
			lo = mid + 1
		} else {
			end = mid
		}
	}
	hi := lo
	for hi < n && r.kids[hi].key == k {
		hi++
	}
	if lo == hi && max(r.skip, need) == 0 {
		return lo, 1, 0 // keys alone decide
	}
	if lo == hi {
		if order, shared = c.compare(r.kids[max(lo-1, 0)].id, key); shared < r.skip {
			return endOf(r, order), order, shared
		}
		return lo, order, shared
	}
	found := false
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if order, shared = c.compare(r.kids[mid].id, key); shared < r.skip {
			return endOf(r, order), order, shared
		}
		if order < 0 {
			lo = mid + 1
		} else {
			hi, found = mid, found || order == 0
		}
	}
	if found {
		order = 0
	}
	return lo, order, shared
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
		r = sort.Search(len(f.keys), func(i int) bool { return f.keys[i] > key }) - 1
		if r < 0 {
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
	i := sort.Search(len(kids), func(i int) bool { return kids[i].key >= key })
	if i < len(kids) && kids[i].key == key {
		return Root, 0, false
	}
	return kids[max(i-1, 0)].id, shared, true
}

// restem brings the stem up to date after a child came or went.
func (c *Cache) restem(f *fork) {
	n := f.runs[0].skip
	if f.keys != nil {
		n = f.skip
	}
	if n <= len(f.stem) {
		f.stem = f.stem[:n]
		return
	}
	f.stem = append(f.stem[:0], c.nodes[f.first()].tokens.Slice()[:n]...)
}

// kidAt is the child at a place, Root if there is none: at may lie one past a
// run's end, which is where the next run starts.
func (c *Cache) kidAt(parent NodeID, at place) NodeID {
	n := &c.nodes[parent]
	if n.fork == nil {
		if at.i < int(n.count) {
			return n.few[at.i].id
		}
		return Root
	}
	if kids := n.fork.runs[at.r].kids; at.i < len(kids) {
		return kids[at.i].id
	}
	if at.r+1 < len(n.fork.runs) {
		return n.fork.runs[at.r+1].kids[0].id
	}
	return Root
}

// before is the place of the next lower child; false if at is the first.
func (c *Cache) before(parent NodeID, at place) (place, bool) {
	switch {
	case at.i > 0:
		return place{at.r, at.i - 1}, true
	case at.r > 0:
		return place{at.r - 1, len(c.nodes[parent].fork.runs[at.r-1].kids) - 1}, true
	}
	return at, false
}

// placeOf is where id stands below its parent.
func (c *Cache) placeOf(parent, id NodeID) place {
	at, found := c.find(parent, c.firstPage(id))
	if !found || c.kidAt(parent, at) != id {
		panic(fmt.Sprintf("radixcache: node %d is not in its place below node %d: %v", id, parent, slices.Collect(c.children(parent))))
	}
	return at
}

// children goes through the children of a node, ascending. They must not
// change meanwhile.
func (c *Cache) children(parent NodeID) iter.Seq[NodeID] {
	return func(yield func(NodeID) bool) {
		n := &c.nodes[parent]
		if n.fork == nil {
			for _, k := range n.few[:n.count] {
				if !yield(k.id) {
					return
				}
			}
			return
		}
		for _, r := range n.fork.runs {
			for _, k := range r.kids {
				if !yield(k.id) {
					return
				}
			}
		}
	}
}
