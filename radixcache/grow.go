package radixcache

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// insert walks from cur along the tokens of r and adds the tokens that the tree lacks.
// pages has the caller's page for each page of r.tokens. It returns the node at which
// the whole pages end (at), the node at which the pages end that the tree held before
// (base), the number of tokens up to there, counted from token 0 (reused), and freed
// with the pages appended that go back to the caller.
//
// The steps: walk as far as whole pages match; split the node if they end inside it;
// replace the caller's pages up to there by the tree's; add a leaf for the remaining
// public tokens, open the private space, and add a leaf for the remaining private
// tokens; add the tail; touch the node at the end. The clock advances once, so all
// nodes that one insert adds have the same stamp.
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

// takeHeld overwrites pages[from:to] with the tree's pages, and returns freed with the
// overwritten pages that differed appended, in order. Node at is the node whose end is
// after page to-1. takeHeld walks up from that node, so it appends the freed pages
// backwards and reverses them at the end.
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

// copyRun returns a copy of r.tokens from the cursor up to index whole, if r is raw;
// otherwise an empty Vec. It panics if a token of a raw r from index from on is
// MediaToken or above. It checks after the copy, when the tokens are in a CPU cache. It
// panics before the tree has changed, so a caller that recovers has an intact tree.
func (t *tree) copyRun(cur *cursor, r *route, from, whole int) (run wide.Vec[kv.Token]) {
	if !r.raw {
		return run
	}
	run = t.memory.Of(r.tokens[cur.tokens:whole])
	if bits := wide.Or(r.tokens[from:]); bits >= MediaToken {
		t.memory.Free(&run)
		t.orphaned(cur.node)
		checkTokens(bits)
	}
	return run
}

// addRun adds a leaf below node at and returns its id. The leaf holds tokens[start:],
// which are whole pages; run is a copy of these tokens, and the leaf takes it over.
// pages has the page of each page of tokens, from token 0 on. addRun also returns
// freed with the pages of tail leaves appended that the new leaf makes redundant.
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

// addTail adds a tail leaf for the tokens tail, which begin at index start, with page
// *page below node at. If a child begins with these tokens already, it adds none,
// returns freed with *page appended, and sets *page to kv.NoPage; but if *page is that
// child's own page it leaves both unchanged. It touches a child that has exactly these
// tokens, but not a longer child, of which only a part was used.
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

// dropTails removes the unpinned tail leaves below a node whose tokens are the first
// tokens of prefix, but not all of prefix. It returns freed with their pages appended.
// prefix is the first page of a child that was just added, or the tokens of a new tail,
// and page is that child's first page; dropTails panics if a tail leaf has it.
//
// Example with pages of 4: there are tail leaves 5, 5 6 and 5 9, and 5 6 7 8 is added.
// The leaves 5 and 5 6 are removed, as a match can copy as much from the new child; 5 9
// is kept.
//
// All leaves to remove sort before prefix, but not side by side: pinned tail leaves, and
// other children that share some of the tokens, sort between them. Each pass of the loop
// shortens prefix to the tokens that the next such leaf can have at most. So there are
// at most 2*PageTokens passes with one binary search each, and mostly one.
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
			// lower does not equal the shortened prefix. All children from the place of
			// that prefix up to lower start with it, so only the first can equal it.
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
		t.superseded(lower)
		freed = t.detach(lower, freed)
		at, _ = t.find(parent, prefix) // the siblings have moved
	}
}

// checkPages panics if pages does not have a page for each page of the key, or if one of
// pages[from:] is negative. The tree already holds the pages before index from. Callers
// call it before they change the tree.
func (t *tree) checkPages(key *Key, pages []kv.PageID, from int) {
	if want := kv.CeilPages(len(key.Tokens), t.cfg.PageTokens); len(pages) != want {
		panic(fmt.Sprintf("radixcache: %d pages for %d tokens, want %d", len(pages), len(key.Tokens), want))
	}
	if wide.Or(pages[from:]) < 0 {
		i := from + slices.IndexFunc(pages[from:], func(p kv.PageID) bool { return p < 0 })
		panic(fmt.Sprintf("radixcache: pages[%d] is %d", i, pages[i]))
	}
}

// checkTokens panics if a token of a key is MediaToken or above; these values are
// reserved for media. bits is the bitwise or of the key's tokens.
func checkTokens(bits kv.Token) {
	if bits >= MediaToken {
		panic(fmt.Sprintf("radixcache: a key has tokens that are not below MediaToken, %d", MediaToken))
	}
}
