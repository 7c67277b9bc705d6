package mempool

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

// MaxSiblings is the largest number of extents below one parent that Part compares.
const MaxSiblings = 256

// Index holds the extents of one tier as a forest, and the order in which its leaves should
// be removed: the least recently used first. Remove refuses an extent with children, so a
// parent stays at least as long as its last child. An Index has one owner and no lock.
type Index struct {
	layout  Layout
	at      map[Key]int32
	entries []entry
	free    []int32
	roots   map[kv.Namespace]*space
	leaves  leafHeap // all leaves that are not pinned
	clock   uint64   // of uses and additions
	bytes   int64
}

// entry is an extent in the index. It names other entries by their index in Index.entries,
// or none.
type entry struct {
	Extent
	bytes       int32 // as passed to Add
	place       int32 // as passed to Add; its meaning is the owner's, for example a slot
	parent      int32
	child       int32 // newest child
	prev, next  int32 // next newer and next older sibling
	children    int32 // number of children
	pins        int32
	used, added uint64   // clock at the last use and at Add
	heapAt      [2]int32 // index in both heaps, by leafPlaces.which; none if in no heap
	space       *space
}

const none = -1

// space is a namespace's part of an index.
type space struct {
	ns     kv.Namespace
	roots  int32 // the newest entry without a parent
	leaves leafHeap
	bytes  int64
	count  int
}

// Hit is an extent that holds the KV of a part of a sequence.
type Hit struct {
	Key   Key
	Place int32 // as passed to Add
	Pages int   // number of the extent's first pages that belong to the sequence
}

// NewIndex makes an empty index of extents of a layout.
func NewIndex(l Layout) *Index {
	return &Index{layout: l, at: map[Key]int32{}, roots: map[kv.Namespace]*space{}}
}

// Len returns the number of extents.
func (ix *Index) Len() int { return len(ix.at) }

// Bytes returns the sum of the bytes that were passed to Add, over all extents.
func (ix *Index) Bytes() int64 { return ix.bytes }

// NamespaceBytes returns the part of Bytes that belongs to one namespace.
func (ix *Index) NamespaceBytes(ns kv.Namespace) int64 {
	if s := ix.roots[ns]; s != nil {
		return s.bytes
	}
	return 0
}

// Has reports whether the index has an extent.
func (ix *Index) Has(k Key) bool { _, ok := ix.at[k]; return ok }

// Place returns the place that was passed to Add for an extent, and reports whether the index
// has the extent.
func (ix *Index) Place(k Key) (place int32, ok bool) {
	if i, ok := ix.at[k]; ok {
		return ix.entries[i].place, true
	}
	return 0, false
}

// Extent returns the extent with key k, and reports whether the index has it. The caller must
// not change its slices.
func (ix *Index) Extent(k Key) (x Extent, ok bool) {
	if i, ok := ix.at[k]; ok {
		return ix.entries[i].Extent, true
	}
	return Extent{}, false
}

// CanAdd returns nil if Add would accept x, or else an error that wraps ErrOrphan: the index
// lacks the parent of x, or x does not follow directly after that parent, or the parent is a
// tail.
func (ix *Index) CanAdd(x *Extent) error {
	if x.Parent.IsZero() {
		return nil
	}
	i, ok := ix.at[x.Parent]
	if !ok {
		return fmt.Errorf("%w: %s below %s", ErrOrphan, x.Key.Short(), x.Parent.Short())
	}
	p := &ix.entries[i]
	if p.Namespace != x.Namespace || p.Start+len(p.Tokens) != x.Start || len(p.Tokens) != ix.layout.ExtentTokens() {
		return fmt.Errorf("%w: %s at token %d does not follow %s, tokens [%d, %d)", ErrOrphan, x.Key.Short(), x.Start, p.Key.Short(), p.Start, p.Start+len(p.Tokens))
	}
	return nil
}

// Add adds a copy of x as the most recently used extent. bytes is the room that x takes in
// the tier, place a number for the owner, which Hits and Place return. If the index has x
// already, Add only touches it, ignores bytes and place, and returns false. It fails as
// CanAdd does.
func (ix *Index) Add(x *Extent, bytes int, place int32) (added bool, err error) {
	if ix.Has(x.Key) {
		ix.Touch(x.Key)
		return false, nil
	}
	if err := ix.CanAdd(x); err != nil {
		return false, err
	}
	i := ix.take()
	e := &ix.entries[i]
	ix.clock++
	*e = entry{Extent: x.Clone(), bytes: int32(bytes), place: place, parent: none, child: none, prev: none, next: none,
		used: ix.clock, added: ix.clock, heapAt: [2]int32{none, none}, space: ix.spaceOf(x.Namespace)}
	first := &e.space.roots
	if !x.Parent.IsZero() {
		e.parent = ix.at[x.Parent]
		p := &ix.entries[e.parent]
		ix.leave(e.parent)
		p.children++
		first = &p.child
	}
	if e.next = *first; e.next != none {
		ix.entries[e.next].prev = i
	}
	*first = i
	ix.at[e.Key] = i
	ix.bytes += int64(bytes)
	e.space.bytes += int64(bytes)
	e.space.count++
	ix.enter(i)
	ix.verify()
	return true, nil
}

// Touch makes an extent the most recently used. It ignores an extent that is not in the index.
func (ix *Index) Touch(k Key) {
	if i, ok := ix.at[k]; ok {
		ix.clock++
		ix.entries[i].used = ix.clock
		ix.fix(i)
	}
}

// Pin keeps an extent from being a Victim until Unpin was called as often as Pin. It panics
// if the extent is not in the index.
func (ix *Index) Pin(k Key) {
	i, ok := ix.at[k]
	if !ok {
		panic(fmt.Sprintf("mempool: pin of %s, which is not in the index", k.Short()))
	}
	ix.leave(i)
	ix.entries[i].pins++
}

// Unpin removes one pin. It ignores an extent that is not in the index or has no pin.
func (ix *Index) Unpin(k Key) {
	if i, ok := ix.at[k]; ok && ix.entries[i].pins > 0 {
		ix.entries[i].pins--
		ix.enter(i)
	}
}

// Remove removes an extent, pinned or not, and returns its place. It fails with ErrMiss if
// the extent is not in the index, and with ErrChildren if it has children.
func (ix *Index) Remove(k Key) (place int32, err error) {
	i, ok := ix.at[k]
	if !ok {
		return 0, fmt.Errorf("%w: %s", ErrMiss, k.Short())
	}
	if n := ix.entries[i].children; n > 0 {
		return 0, fmt.Errorf("%w: %s has %d", ErrChildren, k.Short(), n)
	}
	place = ix.entries[i].place
	ix.drop(i)
	ix.verify()
	return place, nil
}

// RemoveTree removes an extent and all extents below it, pinned or not, and returns dst with
// them appended, children first. It ignores an extent that is not in the index.
func (ix *Index) RemoveTree(k Key, dst []Hit) []Hit {
	top, ok := ix.at[k]
	if !ok {
		return dst
	}
	for i := top; ; {
		if c := ix.entries[i].child; c != none {
			i = c
			continue
		}
		e := &ix.entries[i]
		up := e.parent
		dst = append(dst, Hit{Key: e.Key, Place: e.place, Pages: ix.layout.Pages(&e.Extent)})
		ix.drop(i)
		if i == top {
			break
		}
		i = up
	}
	ix.verify()
	return dst
}

// Children returns the number of an extent's children, 0 if it is not in the index.
func (ix *Index) Children(k Key) int {
	if i, ok := ix.at[k]; ok {
		return int(ix.entries[i].children)
	}
	return 0
}

// Subtree returns dst with an extent and all extents below it appended, children first. It
// appends nothing if the extent is not in the index. The caller must not change their slices.
func (ix *Index) Subtree(k Key, dst []Extent) []Extent {
	top, ok := ix.at[k]
	if !ok {
		return dst
	}
	first := len(dst)
	for next := []int32{top}; len(next) > 0; {
		i := next[len(next)-1]
		next = next[:len(next)-1]
		dst = append(dst, ix.entries[i].Extent)
		for c := ix.entries[i].child; c != none; c = ix.entries[c].next {
			next = append(next, c)
		}
	}
	slices.Reverse(dst[first:])
	return dst
}

// Victim returns the extent to remove next: the least recently used leaf without pins, of
// the namespace of, or of all namespaces if of is nil. ok is false if there is none.
func (ix *Index) Victim(of *kv.Namespace) (k Key, ok bool) {
	h := &ix.leaves
	if of != nil {
		s := ix.roots[*of]
		if s == nil {
			return Key{}, false
		}
		h = &s.leaves
	}
	if len(h.Items) == 0 {
		return Key{}, false
	}
	return ix.entries[h.Items[0].entry].Key, true
}

// Part returns the extent with the parent of x that shares most first pages with x, and their
// number in best.Pages. It compares only the MaxSiblings extents that were added last. ok is
// false if none shares a page.
func (ix *Index) Part(x *Extent) (best Hit, ok bool) {
	for i, n := ix.siblings(x), 0; i != none && n < MaxSiblings; i, n = ix.entries[i].next, n+1 {
		e := &ix.entries[i]
		if pages := ix.layout.SharedPages(&e.Extent, x); pages > best.Pages {
			best = Hit{e.Key, e.place, pages}
		}
	}
	return best, best.Pages > 0
}

// Parts returns dst with the keys of all other extents appended that have the parent of x and
// share a page or more with x. Cost: the number of extents with that parent.
func (ix *Index) Parts(x *Extent, dst []Key) []Key {
	for i := ix.siblings(x); i != none; i = ix.entries[i].next {
		if e := &ix.entries[i]; e.Key != x.Key && ix.layout.SharedPages(&e.Extent, x) > 0 {
			dst = append(dst, e.Key)
		}
	}
	return dst
}

// siblings returns the entry that was added last of those with the parent of x; none if there
// is no such entry.
func (ix *Index) siblings(x *Extent) int32 {
	if p, ok := ix.at[x.Parent]; ok {
		return ix.entries[p].child
	} else if s := ix.roots[x.Namespace]; s != nil && x.Parent.IsZero() {
		return s.roots
	}
	return none
}

// Contents returns dst with all extents appended in the order in which they were added, so
// parents come before children. The caller must not change their slices.
func (ix *Index) Contents(dst []Extent) []Extent {
	var all []int32
	for i := range ix.entries {
		if ix.entries[i].space != nil {
			all = append(all, int32(i))
		}
	}
	slices.SortFunc(all, func(a, b int32) int { return cmp.Compare(ix.entries[a].added, ix.entries[b].added) })
	for _, i := range all {
		dst = append(dst, ix.entries[i].Extent)
	}
	return dst
}

func (ix *Index) take() int32 {
	if n := len(ix.free); n > 0 {
		i := ix.free[n-1]
		ix.free = ix.free[:n-1]
		return i
	}
	ix.entries = append(ix.entries, entry{})
	return int32(len(ix.entries) - 1)
}

func (ix *Index) spaceOf(ns kv.Namespace) *space {
	s := ix.roots[ns]
	if s == nil {
		s = &space{ns: ns, roots: none}
		ix.roots[ns] = s
	}
	return s
}

// drop removes an entry that has no children.
func (ix *Index) drop(i int32) {
	ix.leave(i)
	e := &ix.entries[i]
	if e.next != none {
		ix.entries[e.next].prev = e.prev
	}
	switch {
	case e.prev != none:
		ix.entries[e.prev].next = e.next
	case e.parent != none:
		ix.entries[e.parent].child = e.next
	default:
		e.space.roots = e.next
	}
	if p := e.parent; p != none {
		ix.entries[p].children--
		ix.entries[p].used = max(ix.entries[p].used, e.used)
		ix.enter(p)
	}
	ix.bytes -= int64(e.bytes)
	e.space.bytes -= int64(e.bytes)
	if e.space.count--; e.space.count == 0 {
		delete(ix.roots, e.space.ns)
	}
	delete(ix.at, e.Key)
	*e = entry{}
	ix.free = append(ix.free, i)
}

func (ix *Index) verify() {
	if invariants.Enabled {
		if err := ix.Check(); err != nil {
			panic(err.Error())
		}
	}
}

// Check walks the whole index and returns an error if parents, children, heaps or sums
// disagree.
func (ix *Index) Check() error {
	var bytes int64
	leaves := 0
	for k, i := range ix.at {
		e := &ix.entries[i]
		if e.Key != k || e.space == nil || ix.roots[e.Namespace] != e.space {
			return fmt.Errorf("mempool: entry %d is filed under %s and has key %s", i, k.Short(), e.Key.Short())
		}
		bytes += int64(e.bytes)
		children := 0
		for c := e.child; c != none; c = ix.entries[c].next {
			if children++; ix.entries[c].parent != i {
				return fmt.Errorf("mempool: %s is listed below %s and has another parent", ix.entries[c].Key.Short(), k.Short())
			}
		}
		if children != int(e.children) || (e.parent == none) != e.Parent.IsZero() {
			return fmt.Errorf("mempool: %s counts %d children, want %d", k.Short(), e.children, children)
		}
		evictable := e.children == 0 && e.pins == 0
		if evictable {
			leaves++
		}
		for w, h := range ix.heaps(e) {
			at := e.heapAt[w]
			if evictable != (at != none) || evictable && (int(at) >= len(h.Items) || h.Items[at] != (leaf{e.used, i})) {
				return fmt.Errorf("mempool: %s is a leaf: %v, its place in heap %d is %d", k.Short(), evictable, w, at)
			}
			if at > 0 && h.Items[(at-1)/2].used > e.used {
				return fmt.Errorf("mempool: %s was used before its parent in heap %d", k.Short(), w)
			}
		}
	}
	if bytes != ix.bytes || leaves != len(ix.leaves.Items) || len(ix.at)+len(ix.free) != len(ix.entries) {
		return fmt.Errorf("mempool: the index counts %d bytes, want %d; %d leaves, want %d; %d entries, want %d", ix.bytes, bytes, len(ix.leaves.Items), leaves, len(ix.at)+len(ix.free), len(ix.entries))
	}
	return nil
}
