package radixcache

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// insert walks on from a cursor and adds the tokens that are missing. It returns
// the node where the whole pages end (at), the node where those that were held
// before end (base), and their number of tokens, counted from token 0 (reused).
//
// The steps: walk as far as whole pages match; split where they end inside a node;
// exchange the caller's pages of this part; add a leaf for the public rest, open the
// private space, and add a leaf for the private rest; add the tail; touch the end.
// The clock advances once, so all nodes of one insert have the same stamp.
func (t *tree) insert(cur cursor, r *route, pages, freed []kv.PageID) (at, base NodeID, reused int, _ []kv.PageID) {
	t.counts.Inserts++
	if len(r.tokens) == 0 {
		return Root, Root, 0, freed
	}
	before, from := len(freed), cur.tokens
	whole := t.floorTokens(len(r.tokens))
	cur, _ = t.follow(cur, r, whole, false)
	reused = cur.tokens
	run := t.copyRun(&cur, r, from, whole)
	t.clock++
	at = cur.node
	if cur.offset > 0 && cur.offset < t.nodes[at].tokens.Len() {
		at = t.split(at, cur.offset)
	}
	base = t.outer(at)
	freed = t.takeHeld(at, from/t.cfg.PageTokens, reused/t.cfg.PageTokens, pages, freed)
	if done := reused; done < r.public {
		at, freed = t.addRun(at, done, r.tokens[:r.public], t.memory.Of(r.tokens[done:r.public]), pages, freed)
	}
	if r.public > 0 && t.nodes[at].end() == r.public && t.nodes[at].space.ns != *r.ns && len(r.tokens) > r.public {
		at = t.openSpace(*r.ns, at)
	}
	if done := t.nodes[at].end(); done < whole {
		if !r.raw {
			run = t.memory.Of(r.tokens[done:whole])
		}
		at, freed = t.addRun(at, done, r.tokens[:whole], run, pages, freed)
	}
	if whole < len(r.tokens) {
		freed = t.addTail(at, whole, r.tokens[whole:], &pages[whole/t.cfg.PageTokens], freed)
	}
	t.touch(at)
	t.orphaned(at) // closes a space that was opened and got nothing
	t.counts.ReturnedPages += uint64(len(freed) - before)
	return t.outer(at), base, reused, freed
}

// takeHeld overwrites pages[from:to] with the tree's pages and appends the caller's
// pages that differed to freed, in order. Node at ends after to pages. It walks up
// from there, so it collects freed pages backwards and reverses them at the end.
func (t *tree) takeHeld(at NodeID, from, to int, pages, freed []kv.PageID) []kv.PageID {
	before := len(freed)
	for ; from < to; at = t.nodes[at].parent {
		n := &t.nodes[at]
		start := int(n.start) / t.cfg.PageTokens
		skip := max(0, from-start)
		mine := pages[start+skip : start+n.pages.Len()]
		if !n.pages.Same(mine, skip) {
			for i := len(mine) - 1; i >= 0; i-- {
				if held := n.pages.At(skip + i); mine[i] != held {
					freed = append(freed, mine[i])
					mine[i] = held
				}
			}
		}
		to = start
	}
	slices.Reverse(freed[before:])
	return freed
}

// copyRun copies the missing whole pages of a raw route, and panics if any of its
// tokens, counted from index from, is MediaToken or above. The check runs after the
// copy, when the tokens are in a cache near the core. It panics before the tree has
// changed, so a caller that recovers has an intact tree.
func (t *tree) copyRun(cur *cursor, r *route, from, whole int) (run wide.Vec[kv.Token]) {
	if !r.raw {
		return run
	}
	run = t.memory.Of(r.tokens[cur.tokens:whole])
	if bits := wide.Or(r.tokens[from:]); bits >= MediaToken {
		t.memory.Free(&run)
		t.orphaned(cur.node)
		t.checkTokens(bits)
	}
	return run
}

// addRun adds a leaf at the end of node at. The leaf holds the whole pages of
// tokens from index start on; run is a copy of these tokens. It appends to freed the
// pages of tail leaves that the new leaf makes redundant.
func (t *tree) addRun(at NodeID, start int, tokens []kv.Token, run wide.Vec[kv.Token], pages, freed []kv.PageID) (NodeID, []kv.PageID) {
	list := pages[start/t.cfg.PageTokens : len(tokens)/t.cfg.PageTokens]
	id := t.attach(node{
		tokens: run,
		pages:  wide.PackedOf(list),
		space:  t.nodes[at].space,
		start:  int32(start),
		parent: at,
	})
	t.journalStored(id, tokens)
	return id, t.dropTails(at, tokens[start:start+t.cfg.PageTokens], list[0], freed)
}

// addTail adds a tail leaf below at, or returns *page through freed if a child holds
// the tokens already. A tail leaf of exactly these tokens becomes recent. A longer
// child does not, as only a part of it was used.
func (t *tree) addTail(at NodeID, start int, tail []kv.Token, page *kv.PageID, freed []kv.PageID) []kv.PageID {
	place, _ := t.find(at, tail)
	if kid := t.kidAt(at, place); kid != Root {
		n := &t.nodes[kid]
		if wide.CommonPrefix(n.tokens.Slice(), tail) == len(tail) {
			if n.tokens.Len() == len(tail) {
				t.touch(kid)
			}
			if held := n.pages.At(0); held != *page {
				freed = append(freed, *page)
				*page = kv.NoPage
			}
			return freed
		}
	}
	id := t.attach(node{
		tokens: t.memory.Of(tail),
		pages:  wide.PackedOf([]kv.PageID{*page}),
		space:  t.nodes[at].space,
		start:  int32(start),
		parent: at,
	})
	t.touch(id)
	return t.dropTails(at, tail, *page, freed)
}

// dropTails removes the unpinned tail leaves below a node if prefix starts with their
// tokens, except one that equals prefix. prefix is the first page of a new child, or a
// new tail, and page is its page.
//
// Example with pages of 4: the tail leaves 5, 5 6 and 5 9 exist and 5 6 7 8 comes in.
// 5 and 5 6 go, as a match can copy as much from the new child; 5 9 stays.
//
// All candidates sort before prefix, but not side by side: pinned ones stay, and
// other children that share some of the tokens sort in between. Each round shortens
// prefix to the longest that can still be there, so there are at most 2*PageTokens
// rounds of one binary search, and mostly one.
func (t *tree) dropTails(parent NodeID, prefix []kv.Token, page kv.PageID, freed []kv.PageID) []kv.PageID {
	if t.counts.Tails == 0 {
		return freed
	}
	at, _ := t.find(parent, prefix)
	for {
		low, ok := t.before(parent, at)
		if !ok {
			return freed
		}
		lower := t.kidAt(parent, low)
		n := &t.nodes[lower]
		shared := wide.CommonPrefix(n.tokens.Slice(), prefix)
		if shared == 0 {
			return freed
		}
		prefix = prefix[:shared]
		if shared < n.tokens.Len() {
			// lower is no prefix of it. All children between lower and the place of the
			// shortened prefix start with that prefix, so only the first can equal it.
			var found bool
			if at, found = t.find(parent, prefix); found {
				at.i++
			}
			continue
		}
		at = low
		if n.pins > 0 {
			continue
		}
		if n.pages.At(0) == page {
			panic(fmt.Sprintf("radixcache: Insert: page %d already belongs to tail leaf %d", page, lower))
		}
		t.noteRemoval(lower, BySuperseding, n.tokens.Len(), 1)
		freed = t.detach(lower, freed)
		at, _ = t.find(parent, prefix) // the siblings have moved
	}
}

// checkPages panics on a wrong number of pages or a negative id, before the tree has
// changed. Pages before index from are not looked at: the tree holds them.
func (t *tree) checkPages(key *Key, pages []kv.PageID, from int) {
	if want := kv.CeilPages(len(key.Tokens), t.cfg.PageTokens); len(pages) != want {
		panic(fmt.Sprintf("radixcache: %d pages for %d tokens, want %d", len(pages), len(key.Tokens), want))
	}
	if wide.Or(pages[from:]) < 0 {
		i := from + slices.IndexFunc(pages[from:], func(p kv.PageID) bool { return p < 0 })
		panic(fmt.Sprintf("radixcache: pages[%d] is %d", i, pages[i]))
	}
}

// checkTokens panics if bits, the bits that any token of a key has set, contains the
// top bit: tokens from MediaToken on are reserved for media.
func (t *tree) checkTokens(bits kv.Token) {
	if bits >= MediaToken {
		panic(fmt.Sprintf("radixcache: a key has tokens that are not below MediaToken, %d", MediaToken))
	}
}
