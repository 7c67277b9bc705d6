package radixcache

import (
	"fmt"
	"iter"
	"slices"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// children goes through the children of a node, ascending. They must not
// change meanwhile.
func (s *slab) children(parent NodeID) iter.Seq[NodeID] {
	return func(yield func(NodeID) bool) {
		n := &s.nodes[parent]
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

// compare orders a child's first page against key, at most a page, and returns
// how many tokens they share. Shorter is lower.
func (s *slab) compare(id NodeID, key []kv.Token) (order, shared int) {
	first := s.firstPage(id)
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
func (s *slab) keyOf(id NodeID, skip int) uint32 {
	if tokens := s.nodes[id].tokens.Slice(); skip < len(tokens) {
		return uint32(tokens[skip])
	}
	return 0
}

// find returns where the first page of key belongs below a node, and whether
// the child there has that very page. A key shorter than a page is found if a
// tail leaf is equal, and stands before all children that start with it.
func (s *slab) find(parent NodeID, key []kv.Token) (place, bool) {
	key = key[:min(s.cfg.PageTokens, len(key))]
	n := &s.nodes[parent]
	if n.fork == nil {
		if n.count == 0 {
			return place{}, false
		}
		i, order, _ := s.findIn(&run{skip: int(n.skip), kids: n.few[:n.count]}, key, 0)
		return place{i: i}, order == 0
	}
	f := n.fork
	if len(f.runs) == 1 {
		i, order, _ := s.findIn(&f.runs[0], key, 0)
		return place{i: i}, order == 0
	}
	need := min(f.skip, len(key))
	r, order, shared := s.findRun(f, key)
	if shared >= need {
		var i int
		if i, order, shared = s.findIn(&f.runs[r], key, need); shared >= need {
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
// say how they stand to it; else shared is at least that, or all of key.
func (s *slab) findRun(f *fork, key []kv.Token) (r, order, shared int) {
	if len(key) <= f.skip {
		order, shared = s.compare(f.first(), key)
		return 0, order, shared
	}
	k := uint32(key[f.skip])
	hi := below(f.keys, uint64(k)+1)
	lo := hi
	if hi > 0 && f.keys[hi-1] == k {
		lo = below(f.keys[:hi], uint64(k))
	}
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if order, shared = s.compare(f.runs[mid].kids[0].id, key); shared < f.skip {
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
func (s *slab) findIn(r *run, key []kv.Token, need int) (i, order, shared int) {
	n := len(r.kids)
	if len(key) <= r.skip {
		order, shared = s.compare(r.kids[0].id, key)
		return endOf(r, order), order, shared
	}
	k := uint32(key[r.skip])
	lo := kidsBelow(r.kids, k)
	hi := lo
	for hi < n && r.kids[hi].key == k {
		hi++
	}
	if lo == hi && max(r.skip, need) == 0 {
		return lo, 1, 0 // keys alone decide
	}
	if lo == hi {
		if order, shared = s.compare(r.kids[max(lo-1, 0)].id, key); shared < r.skip {
			return endOf(r, order), order, shared
		}
		return lo, order, shared
	}
	found := false
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if order, shared = s.compare(r.kids[mid].id, key); shared < r.skip {
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

// kidAt is the child at a place, Root if there is none: at may lie one past a
// run's end, which is where the next run starts.
func (s *slab) kidAt(parent NodeID, at place) NodeID {
	n := &s.nodes[parent]
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
func (s *slab) before(parent NodeID, at place) (place, bool) {
	switch {
	case at.i > 0:
		return place{at.r, at.i - 1}, true
	case at.r > 0:
		return place{at.r - 1, len(s.nodes[parent].fork.runs[at.r-1].kids) - 1}, true
	}
	return at, false
}

// placeOf is where id stands below its parent.
func (s *slab) placeOf(parent, id NodeID) place {
	at, found := s.find(parent, s.firstPage(id))
	if !found || s.kidAt(parent, at) != id {
		panic(fmt.Sprintf("radixcache: node %d is not in its place below node %d: %v", id, parent, slices.Collect(s.children(parent))))
	}
	return at
}

// shared is how many tokens of their first pages two children share.
func (s *slab) shared(a, b NodeID) int {
	return wide.CommonPrefix(s.firstPage(a), s.firstPage(b))
}

// eachNode goes through the nodes of one space below a node.
func (s *slab) eachNode(id NodeID, visit func(NodeID)) {
	for kid := range s.children(id) {
		visit(kid)
		s.eachNode(kid, visit)
	}
}
