package radixcache

import (
	"sort"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// fewKids is the largest number of children that a node stores itself, in node.few; with
// more children it has a fork. The node's first cache line has room for three of 8 bytes.
const fewKids = 3

// Sizes of a run of children: a run with more than maxRun children is split, and two
// neighbouring runs are merged when they have at most mergeRun children in sum.
const (
	maxRun   = 127 // so that one more child fits an array of 128 before the split
	mergeRun = 64
)

// fork holds the children of a node that has too many for node.few, ascending by first
// page, in runs of at most maxRun. No two children have the same first page.
//
// The hash index finds the child whose first page is the key's next page. If there is no
// such child, a search in the runs finds the children that sort before and after the key,
// for a partial page or an insertion. That search reads keys, which lie side by side in
// memory, and then one or two children, whether there are 100 children or 100,000.
//
// Example with pages of 4: the children 5 5 1 0, 5 5 3 0 and 5 5 3 9 share two tokens.
// Their run has skip 2 and the keys 1 3 3, so a search for 5 5 2 0 compares 2 with the
// keys, and then reads one child to see that it begins with 5 5.
type fork struct {
	index forkIndex
	runs  []run
	keys  []uint32   // by run: its first child's token at index skip; nil while there is one run
	stem  []kv.Token // first tokens of all children; len is skip, or the only run's skip
	skip  int        // lower bound on the tokens that all children share; valid if keys is not nil
	edge  int        // number of removals since skip was exact: see widenRuns
}

// run is a sequence of neighbouring children.
type run struct {
	kids []kid
	skip int // lower bound on the tokens that all of kids share
}

// kid is a child, with a key: the child's token at index skip of its run, or 0 if the
// child is a tail leaf that has no token there. Several children may have equal keys.
type kid struct {
	key uint32
	id  NodeID
}

// place is where a child is, or would be inserted, below its parent: index i in run r of
// the fork. Without a fork r is 0 and i the index in node.few.
type place struct{ r, i int }

// narrow sets skip to a lower index and the key of all children to key, the token that
// they all have at that index.
func (r *run) narrow(skip int, key uint32) {
	for i := range r.kids {
		r.kids[i].key = key
	}
	r.skip = skip
}

// lowest returns the lowest child.
func (f *fork) lowest() NodeID { return f.runs[0].kids[0].id }

// highest returns the highest child.
func (f *fork) highest() NodeID {
	kids := f.runs[len(f.runs)-1].kids
	return kids[len(kids)-1].id
}

// below returns the number of keys less than bound. keys must ascend.
func below(keys []uint32, bound uint64) int {
	return sort.Search(len(keys), func(i int) bool { return uint64(keys[i]) >= bound })
}

// kidsBelow returns the number of children whose key is less than the argument key. kids
// must ascend by key.
func kidsBelow(kids []kid, key uint32) int {
	return sort.Search(len(kids), func(i int) bool { return kids[i].key >= key })
}

// endOf returns the index in run r of a key that sorts before or after all children of the
// run, or equals the first child. order is the result of comparing the children with the
// key: -1 if they are lower, and 0 or 1 otherwise.
func endOf(r *run, order int) int {
	if order < 0 {
		return len(r.kids)
	}
	return 0
}

// beside returns the child that shares most tokens with rest, and the number of tokens
// that they share, if the keys alone decide it, and true. They do if rest begins with the
// stem, the tokens that all children share, and no child has rest's next token after the
// stem. Then every child shares exactly the stem with rest, and beside returns the last
// child that sorts before rest, or the first child. Otherwise ok is false, and the caller
// must read children.
func (f *fork) beside(rest []kv.Token) (id NodeID, shared int, ok bool) {
	shared = len(f.stem)
	if len(rest) <= shared || wide.CommonPrefix(f.stem, rest) < shared {
		return Root, 0, false
	}
	key, r := uint32(rest[shared]), 0
	if f.keys != nil {
		if r = below(f.keys, uint64(key)+1) - 1; r < 0 {
			return f.lowest(), shared, true
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
