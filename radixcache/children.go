package radixcache

import (
	"fmt"
	"iter"
	"slices"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// children iterates over the children of a node, ascending by first page. The
// loop's body must not add or remove children of that node.
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

// compare compares a child's first page with key, which has at most a page of
// tokens. order is -1, 0 or 1 if the child is lower than, equal to or higher than
// key. shared is the number of first tokens that the two have in common. Tokens
// compare by value, and a prefix is lower than what it begins: with pages of 4, the
// tail leaf 5 5 is lower than 5 5 0 0.
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

// keyOf returns a child's token at index skip, or 0 for a tail leaf that has no
// token there. The token 0 gives the same key, so equal keys do not prove that the
// tokens are equal.
func (s *slab) keyOf(id NodeID, skip int) uint32 {
	if tokens := s.nodes[id].tokens.Slice(); skip < len(tokens) {
		return uint32(tokens[skip])
	}
	return 0
}

// find returns the place of key's first page among a node's children, and reports
// whether the child at that place has exactly these tokens. For a key shorter than a
// page that child is a tail leaf, and the place is before all children that start
// with key.
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

// findRun returns the index r of the run (group of neighbouring children, sorted) in which
// key belongs: the last run whose first child is not above key, or 0 if all are above.
//
// All children of a fork share their first f.skip tokens. There are three cases:
//   - key has at most f.skip tokens: r is 0, and order and shared are the result of
//     comparing the first child with key.
//   - key is longer and differs from the children within these tokens: r is 0, shared is
//     less than f.skip, and order is -1 if the children are lower than key, 1 if higher.
//   - Otherwise shared is f.skip and order 0, and the caller searches run r.
func (s *slab) findRun(f *fork, key []kv.Token) (r, order, shared int) {
	if len(key) <= f.skip {
		order, shared = s.compare(f.lowest(), key)
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

// findIn returns the index i of the first child of run r that is not lower than key,
// or len(r.kids). order and shared are the result of the last compare that it made,
// but order is 0 if child i equals key.
//
// It first searches the kids' keys as if key had the first r.skip tokens that all
// children share, and only then reads a child to confirm it: a run has up to 127
// pairs of key and id, 8 bytes each, side by side, but reading a child is mostly a
// cache miss. need is a number of first tokens that the caller wants to know to be
// shared: if it or r.skip is above 0, findIn reads at least one child, and shared
// shows whether key differs within these tokens.
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

// kidAt returns the child at a place, or Root if there is none. If the place is one
// past the end of a run, that is the first child of the next run.
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

// before returns the place of the child before the place at, and true. It returns
// false if at is the first place.
func (s *slab) before(parent NodeID, at place) (place, bool) {
	switch {
	case at.i > 0:
		return place{at.r, at.i - 1}, true
	case at.r > 0:
		return place{at.r - 1, len(s.nodes[parent].fork.runs[at.r-1].kids) - 1}, true
	}
	return at, false
}

// placeOf returns the place of child id below its parent. It panics if the child is
// not found, which only happens in a broken tree.
func (s *slab) placeOf(parent, id NodeID) place {
	at, found := s.find(parent, s.firstPage(id))
	if !found || s.kidAt(parent, at) != id {
		panic(fmt.Sprintf("radixcache: node %d is not in its place below node %d: %v", id, parent, slices.Collect(s.children(parent))))
	}
	return at
}

// shared returns the number of first tokens that the first pages of two children
// have in common. Children are sorted, so the tokens that the lowest and the highest
// child of a run share are shared by all children of the run.
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
