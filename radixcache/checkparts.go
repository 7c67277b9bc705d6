package radixcache

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// fork checks the list of a node's children, in the node itself or in its fork: it compares
// keys and skips with the children's tokens, and checks the sizes of runs. The caller checks
// that the children ascend.
func (w *walk) fork(id NodeID) {
	c, n := w.c, &w.c.nodes[id]
	if n.count > fewKids {
		failf("node %d names %d children itself", id, n.count)
	}
	for kid := range c.children(id) {
		if kid == Root || int(kid) >= len(c.nodes) || c.nodes[kid].tokens.Len() == 0 {
			failf("child %d of node %d is unknown or empty", kid, id)
		}
	}
	f := n.fork
	if f == nil {
		if n.count < 2 && n.skip != 0 || slices.ContainsFunc(n.few[n.count:], func(k kid) bool { return k != kid{} }) {
			failf("node %d names %d children itself, %v, and skips %d tokens", id, n.count, n.few, n.skip)
		}
		if n.count > 0 {
			w.run(id, 0, &run{kids: n.few[:n.count], skip: int(n.skip)})
		}
		return
	}
	kids := 0
	for i := range f.runs {
		r := &f.runs[i]
		kids += len(r.kids)
		if len(r.kids) == 0 || len(r.kids) > maxRun || i > 0 && len(f.runs[i-1].kids)+len(r.kids) <= mergeRun {
			failf("run %d of node %d has %d children, the run before is small too or there are none or too many", i, id, len(r.kids))
		}
		w.run(id, i, r)
		if f.keys != nil && (f.skip < 0 || len(f.keys) != len(f.runs) || f.keys[i] != c.keyOf(r.kids[0].id, f.skip)) {
			failf("run %d of %d of node %d is not found by keys %v", i, len(f.runs), id, f.keys)
		}
	}
	switch {
	case n.count != 0 || n.few != [fewKids]kid{} || n.skip != 0 || kids < fewKids:
		failf("node %d has a fork of %d children, and %d besides", id, kids, n.count)
	case (f.keys == nil) != (len(f.runs) == 1):
		failf("node %d has %d runs of children, %d keys", id, len(f.runs), len(f.keys))
	case f.keys != nil && f.skip > c.shared(f.lowest(), f.highest()):
		failf("the children of node %d skip %d tokens, they share %d", id, f.skip, c.shared(f.lowest(), f.highest()))
	}
	w.index(id, f)
}

// index checks that the hash index of f, the fork of node id, finds each child that has a
// whole page, and holds nothing else.
func (w *walk) index(id NodeID, f *fork) {
	c, page, indexed, used := w.c, w.c.cfg.PageTokens, 0, 0
	for _, s := range f.index.slots {
		used += count(s.id != Root)
	}
	for kid := range c.children(id) {
		if c.nodes[kid].tokens.Len() < page {
			continue
		}
		indexed++
		hash := hashFirst(c.nodes[kid].tokens.Slice(), page)
		found := NodeID(Root)
		for at, tries := hash, 0; tries <= len(f.index.slots); tries++ {
			if found = f.index.lookup(hash, &at); found == kid || found == Root {
				break
			}
		}
		if found != kid {
			failf("child %d of node %d is not in its index", kid, id)
		}
	}
	if size := len(f.index.slots); f.index.used != indexed || used != indexed || size&(size-1) != 0 || 4*used > 3*size {
		failf("the index of node %d has %d slots, %d in use, counts %d; it has %d children with whole pages", id, size, used, f.index.used, indexed)
	}
}

// run checks the skip and the keys of r, run number i of the children of node id.
func (w *walk) run(id NodeID, i int, r *run) {
	c := w.c
	if shared := c.shared(r.kids[0].id, r.kids[len(r.kids)-1].id); r.skip < 0 || r.skip > shared || r.skip >= c.cfg.PageTokens {
		failf("run %d of node %d skips %d tokens, its children share %d", i, id, r.skip, shared)
	}
	for _, k := range r.kids {
		if want := c.keyOf(k.id, r.skip); k.key != want {
			failf("child %d of node %d has key %d, want %d", k.id, id, k.key, want)
		}
	}
}

// mediaOf counts the tokens that stand for media in a node, whose tokens are w.path from
// start on. A token in the middle of a span must follow another token of that medium.
func (w *walk) mediaOf(id NodeID, start int) {
	entries := w.c.media.entries
	for i := start; i < len(w.path); i++ {
		t := w.path[i]
		if t < MediaToken {
			continue
		}
		m := int(t-MediaToken) / 2
		if m >= len(entries) {
			failf("node %d has token %d, of medium %d, there are %d", id, t, m, len(entries))
		}
		w.uses[m]++
		if first := (t-MediaToken)%2 == 0; first {
			continue
		}
		if i == 0 || w.path[i-1] < MediaToken || entries[(w.path[i-1]-MediaToken)/2].key.hash != entries[m].key.hash {
			failf("node %d continues medium %d at token %d, which did not begin", id, m, i)
		}
	}
}

// media checks that each medium of the tree has a number with the right count, and that
// all other numbers are free.
func (w *walk) media() {
	m := &w.c.media
	unused := 0
	for i, e := range m.entries {
		if e.uses != w.uses[i] {
			failf("medium %d is used by %d tokens, counted %d", i, e.uses, w.uses[i])
		}
		if e.uses == 0 {
			unused++
		} else if id, ok := m.ids[e.key]; !ok || int(id) != i {
			failf("medium %d, %+v, has number %d, known: %v", i, e.key, id, ok)
		}
	}
	free := slices.Clone(m.free)
	slices.Sort(free)
	if free = slices.Compact(free); len(free) != len(m.free) || len(free) != unused || len(m.ids)+unused != len(m.entries) {
		failf("%d media, %d of them not used, %d names, free %v", len(m.entries), unused, len(m.ids), m.free)
	}
	for _, i := range free {
		if int(i) >= len(m.entries) || m.entries[i].uses > 0 {
			failf("medium %d is free and used, or unknown", i)
		}
	}
}

// plain returns a block's tokens with placeholders where the tree has tokens of media, as
// callers pass them in, and the hashes of the block's media, sorted, each once. The tokens
// are valid until the next call.
func (w *walk) plain(block []kv.Token) ([]kv.Token, []uint64) {
	w.block = append(w.block[:0], block...)
	var hashes []uint64
	for i, t := range block {
		if t < MediaToken {
			continue
		}
		key := w.c.media.entries[(t-MediaToken)/2].key
		w.block[i] = key.placeholder
		hashes = append(hashes, key.hash)
	}
	slices.Sort(hashes)
	return w.block, slices.Compact(hashes)
}

// prefixes checks that each pinned prefix has a handle on a node of its own, which ends where
// the prefix does, and that their tokens are within the budget.
func (w *walk) prefixes() {
	c, tokens := w.c, 0
	type pin struct {
		node  NodeID
		owner SessionID
	}
	pinned, owners := map[pin]bool{}, map[SessionID]bool{}
	for _, p := range c.prefixes.pins {
		id := pin{p.node, p.owner}
		if p.node == Root || int(p.node) >= len(c.nodes) || c.nodes[p.node].space == nil || pinned[id] || owners[p.owner] {
			failf("pinned prefix of %d tokens at node %d of session %d, which is unknown or there twice", p.tokens, p.node, p.owner)
		}
		pinned[id] = true
		owners[p.owner] = p.owner != 0
		tokens += p.tokens
		if n := &c.nodes[p.node]; n.held < 1 || n.end() != p.tokens || n.space.dead || p.until < 0 {
			failf("pinned prefix of %d tokens until %v: node %d ends at %d, %d handles, flushed: %v", p.tokens, p.until, p.node, n.end(), n.held, n.space.dead)
		}
	}
	if tokens != c.prefixes.tokens || tokens > c.cfg.PinnedTokens {
		failf("%d tokens of pinned prefixes, counted %d, at most %d", c.prefixes.tokens, tokens, c.cfg.PinnedTokens)
	}
}
