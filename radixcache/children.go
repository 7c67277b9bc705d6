package radixcache

import (
	"fmt"
	"iter"
	"slices"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// children iterates over the children of a node, ascending by first page. They
// must not change meanwhile.
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

// compare orders a child's first page against key, which is at most a page:
// order is -1, 0 or 1 as the child is lower, equal or higher, shared the number
// of tokens in common. Tokens compare by value, and a prefix is lower: with pages
// of 4, the tail leaf 5 5 is lower than 5 5 0 0.
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

// keyOf returns a child's token at index skip, or 0 for a tail leaf that ends
// before. A token 0 gives the same key, so equal keys never prove equal tokens.
func (s *slab) keyOf(id NodeID, skip int) uint32 {
	if tokens := s.nodes[id].tokens.Slice(); skip < len(tokens) {
		return uint32(tokens[skip])
	}
	return 0
}

// find returns the place of key's first page among a node's children, and whether
// the child there has that very page. A key shorter than a page is found if an
// equal tail leaf exists, and its place is before all children that start with it.
//
// With many children there are two steps, each a binary search over keys that lie
// side by side: findRun picks the run, findIn the child within it.
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
	// key differs within the tokens that all children share, so it belongs before
	// the first child or after the last.
	if order > 0 {
		return place{}, false
	}
	last := len(f.runs) - 1
	return place{last, len(f.runs[last].kids)}, false
}

// findRun returns the index r of the run to search for key: the last one whose first
// child is not above key, or 0 if there is none.
//
// All children of a fork share their first f.skip tokens. If key differs from them
// within these tokens, shared < f.skip, and order is that of the children relative to
// key. If key has at most f.skip tokens, order and shared compare the first child with
// it. Otherwise shared is f.skip and order 0, and the caller searches run r.
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

// findIn returns the index of the first child of a run that is not below key.
// order and shared are the result of the last comparison made, with order 0 if
// the child at the index equals key.
//
// Keys are compared first and trusted, and only then is a child read: a run has up
// to 127 pairs of key and id, 8 bytes each, side by side, but reading a child is
// mostly a cache miss. That comparison also shows if key differs within the tokens
// that all children of the run share (run.skip), or in its first need tokens.
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

// kidAt returns the child at a place, or Root if there is none. A place may be one
// past the end of a run: it then means the first child of the next run.
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

// before returns the place of the next lower child, and false if at is the first.
func (s *slab) before(parent NodeID, at place) (place, bool) {
	switch {
	case at.i > 0:
		return place{at.r, at.i - 1}, true
	case at.r > 0:
		return place{at.r - 1, len(s.nodes[parent].fork.runs[at.r-1].kids) - 1}, true
	}
	return at, false
}

// placeOf returns the place of a child below its parent. It panics if the child
// is not there, which would be a broken tree.
func (s *slab) placeOf(parent, id NodeID) place {
	at, found := s.find(parent, s.firstPage(id))
	if !found || s.kidAt(parent, at) != id {
		panic(fmt.Sprintf("radixcache: node %d is not in its place below node %d: %v", id, parent, slices.Collect(s.children(parent))))
	}
	return at
}

// shared returns the number of tokens that the first pages of two children have
// in common. Children are sorted, so the lowest and the highest of some children
// share exactly what all of them share.
func (s *slab) shared(a, b NodeID) int {
	return wide.CommonPrefix(s.firstPage(a), s.firstPage(b))
}

// eachNode visits the nodes below a node that are in its space, parents first.
func (s *slab) eachNode(id NodeID, visit func(NodeID)) {
	for kid := range s.children(id) {
		visit(kid)
		s.eachNode(kid, visit)
	}
}
