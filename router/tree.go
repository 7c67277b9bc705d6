package router

import (
	"math/bits"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// tree holds the prompts' prefixes that each worker's active requests hold: a radix tree of
// chained block hashes with compressed edges. A worker's number of distinct blocks is the sum of
// the run lengths of the nodes that it has. So a request costs one step per node, not one entry
// of a hash table per block. Example: two requests of blocks [a b c d] and [a b x] on one worker
// are the nodes [a b], [c d] and [x], which is 5 distinct blocks for 7.
//
// Invariants: a worker that has a node has the node's parent. In each node except the root a
// request ends, or it has two children or more, so there are at most twice as many nodes as
// requests.
type tree struct {
	words int // of 64 bits per node: one bit per worker slot
	nodes []node
	bits  []uint64 // the words of each node: the slots that have it
	free  []int32  // indices of unused nodes

	children table // (first hash, parent) -> node
	refs     table // (slot, node) -> number of the worker's requests whose path has the node
	runs     runs
	path     []step // scratch of depths
	promises table  // (hash, slot) -> number of requests that will compute it, at least 1; see promise
}

// rootNode exists from the start and has no run.
const rootNode = 0

// node is a run of blocks between two places where prompts end or differ. The slots of the
// workers that have it are in tree.bits.
type node struct {
	parent int32
	ends   int32 // requests that end here
	// children is the number of children, childXor the exclusive or of their ids. If there is
	// one child, childXor is its id, so merge finds it without a list of children.
	children int32
	childXor int32
	holders  int32          // number of slots that have it
	run      []kv.BlockHash // the edge from the parent
	store    []kv.BlockHash // the memory of run, for its return to runs
}

// step is a node on the path of a prompt. depth is the number of blocks, counted from the root,
// that the prompt shares with the path up to and including this node.
type step struct{ node, depth int32 }

// newTree returns a tree for this number of worker slots. The seed keeps clients from choosing
// prompts whose block hashes collide in the tables.
func newTree(seed uint64, slots int) tree {
	t := tree{words: (slots + 63) / 64, children: newTable(seed), refs: newTable(seed), promises: newTable(seed)}
	t.node() // the root
	return t
}

// node returns the id of a new node without contents.
func (t *tree) node() int32 {
	id := occupy(&t.nodes, &t.free)
	for len(t.bits) < len(t.nodes)*t.words {
		t.bits = append(t.bits, 0)
	}
	return id
}

// has returns the bits of node id: bit i is set if the worker in slot i has the node.
func (t *tree) has(id int32) []uint64 { return t.bits[int(id)*t.words : (int(id)+1)*t.words] }

// depths sets dst[slot] to the number of leading hashes that the active requests of the worker
// in slot hold. dst has one element per slot, all 0 before the call.
func (t *tree) depths(hashes []kv.BlockHash, dst []int32) {
	t.path = t.path[:0]
	for at, depth := int32(rootNode), 0; depth < len(hashes); {
		next := t.children.get(key{uint64(hashes[depth]), uint32(at)})
		if next == noEntry {
			break
		}
		run := t.nodes[next].run
		same := wide.CommonPrefix(run, hashes[depth:])
		depth += same
		t.path = append(t.path, step{next, int32(depth)})
		if same < len(run) {
			break
		}
		at = next
	}
	// From the end of the path: a slot's depth is that of the deepest node that it has. "has &^="
	// below leaves the slots that end in this node.
	for i := len(t.path) - 1; i >= 0; i-- {
		below := -1
		if i+1 < len(t.path) {
			below = int(t.path[i+1].node)
		}
		for w, has := range t.has(t.path[i].node) {
			if below >= 0 {
				has &^= t.bits[below*t.words+w]
			}
			for ; has != 0; has &= has - 1 {
				dst[w*64+bits.TrailingZeros64(has)] = t.path[i].depth
			}
		}
	}
}

// insert adds a request with these block hashes for the worker in slot. end is the node in which
// the request's path ends (rootNode without hashes), added the number of blocks that the worker
// did not hold before.
func (t *tree) insert(slot int32, hashes []kv.BlockHash) (end int32, added int) {
	at := int32(rootNode)
	for i := 0; i < len(hashes); {
		next := t.children.get(key{uint64(hashes[i]), uint32(at)})
		if next == noEntry {
			next = t.leaf(at, hashes[i:])
		} else if same := wide.CommonPrefix(t.nodes[next].run, hashes[i:]); same < len(t.nodes[next].run) {
			next = t.split(next, same)
		}
		run := len(t.nodes[next].run)
		if t.refs.add(key{uint64(slot), uint32(next)}, 1) == 1 {
			t.has(next)[slot/64] |= 1 << (slot % 64)
			t.nodes[next].holders++
			added += run
		}
		at, i = next, i+run
	}
	if at != rootNode {
		t.nodes[at].ends++
	}
	return at, added
}

// leaf adds a node with a copy of hashes below parent, and returns its id. No worker has the
// node yet.
func (t *tree) leaf(parent int32, hashes []kv.BlockHash) int32 {
	id := t.node()
	n := &t.nodes[id]
	n.store = t.runs.take(len(hashes))
	n.run = n.store[:copy(n.store, hashes)]
	t.link(id, parent)
	return id
}

// link makes node id, which has a run, a child of parent.
func (t *tree) link(id, parent int32) {
	t.nodes[id].parent = parent
	p := &t.nodes[parent]
	p.children++
	p.childXor ^= id
	t.children.put(key{uint64(t.nodes[id].run[0]), uint32(parent)}, id)
}

// unlink removes node id from the children of its parent.
func (t *tree) unlink(id int32) {
	parent := t.nodes[id].parent
	p := &t.nodes[parent]
	p.children--
	p.childXor ^= id
	t.children.delete(key{uint64(t.nodes[id].run[0]), uint32(parent)})
}

// split cuts the run of node id at index at. It returns the id of a new node, the parent of
// the old one, with the part before at. The old node keeps its id and the part from at on,
// because reservations name the node at which their path ends.
func (t *tree) split(id int32, at int) int32 {
	upper := t.node()
	n, u := &t.nodes[id], &t.nodes[upper]
	u.store = t.runs.take(at)
	u.run = u.store[:copy(u.store, n.run[:at])]
	parent := n.parent
	t.unlink(id)
	t.link(upper, parent)
	n.run = n.run[at:]
	t.link(id, upper)
	u.holders = n.holders
	has := t.has(upper)
	copy(has, t.has(id))
	for slot := range slots(has) {
		t.refs.put(key{uint64(slot), uint32(upper)}, t.refs.get(key{uint64(slot), uint32(id)}))
	}
	return upper
}

// remove undoes an insert for the worker in slot that returned end. It returns the number of
// blocks that the worker no longer holds. Nodes that are left without a worker are freed. If the
// node above the freed ones has a single child left and no request ends in it, the two are
// joined.
func (t *tree) remove(slot, end int32) (removed int) {
	if end == rootNode {
		return 0
	}
	t.nodes[end].ends--
	for at := end; at != rootNode; at = t.nodes[at].parent {
		if t.refs.add(key{uint64(slot), uint32(at)}, -1) == 0 {
			t.has(at)[slot/64] &^= 1 << (slot % 64)
			t.nodes[at].holders--
			removed += len(t.nodes[at].run)
		}
	}
	at := end
	for at != rootNode && t.nodes[at].holders == 0 {
		parent := t.nodes[at].parent
		t.unlink(at)
		t.drop(at)
		at = parent
	}
	if n := &t.nodes[at]; at != rootNode && n.ends == 0 && n.children == 1 {
		t.merge(at)
	}
	return removed
}

// merge joins node id, in which no request ends, with its only child. The child keeps its id and
// gets both runs. Every request through one of the two goes through the other, so the child's
// references and holders stay as they are.
func (t *tree) merge(id int32) {
	child := t.nodes[id].childXor
	parent := t.nodes[id].parent
	n, c := &t.nodes[id], &t.nodes[child]
	t.unlink(child)
	t.unlink(id)
	store := t.runs.take(len(n.run) + len(c.run))
	k := copy(store, n.run)
	k += copy(store[k:], c.run)
	t.runs.give(c.store)
	c.store, c.run = store, store[:k]
	t.link(child, parent)
	for slot := range slots(t.has(id)) {
		t.refs.delete(key{uint64(slot), uint32(id)})
	}
	t.drop(id)
}

// drop frees node id, which has been unlinked.
func (t *tree) drop(id int32) {
	t.runs.give(t.nodes[id].store)
	clear(t.has(id))
	t.nodes[id] = node{}
	t.free = append(t.free, id)
}

// slots ranges over the slots whose bits are set in has.
func slots(has []uint64) func(yield func(int32) bool) {
	return func(yield func(int32) bool) {
		for w, word := range has {
			for ; word != 0; word &= word - 1 {
				if !yield(int32(w*64 + bits.TrailingZeros64(word))) {
					return
				}
			}
		}
	}
}

// runs lends memory for the runs of nodes and takes it back. Sizes are powers of two,
// so that a returned run fits a later one; at most half of a run is unused.
type runs struct{ free [32][][]kv.BlockHash }

// take returns memory for at least n hashes, n at least 1.
func (r *runs) take(n int) []kv.BlockHash {
	class := bits.Len(uint(n - 1))
	if k := len(r.free[class]); k > 0 {
		store := r.free[class][k-1]
		r.free[class] = r.free[class][:k-1]
		return store
	}
	return make([]kv.BlockHash, 1<<class)
}

// give takes memory back.
func (r *runs) give(store []kv.BlockHash) {
	class := bits.Len(uint(len(store) - 1))
	r.free[class] = append(r.free[class], store)
}

// prefix returns the block hashes on the path from the root to node end, including its run. They
// are a copy.
func (t *tree) prefix(end int32) []kv.BlockHash {
	n := 0
	for at := end; at != rootNode; at = t.nodes[at].parent {
		n += len(t.nodes[at].run)
	}
	hashes := make([]kv.BlockHash, n)
	for at := end; at != rootNode; at = t.nodes[at].parent {
		n -= copy(hashes[n-len(t.nodes[at].run):], t.nodes[at].run)
	}
	return hashes
}
