package radixcache

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// Insert gives the tree the pages of a computed sequence; it adopts those that
// it lacks. pages: len = CeilPages(len(tokens)), ascending token position. The
// caller keeps both slices; tokens are copied.
//
// Whole pages: where the tree already holds the position, pages[i] is
// rewritten to the tree's page and the caller's page is appended to freed; the
// same page is left as it is. So pages names the tree's pages afterwards.
//
// A last page that is not full is a partial tail. It becomes a tail leaf,
// which is never split nor extended, and which matches only copy from. If some
// child starts with its tokens already, the page is appended to freed and the
// last entry of pages becomes [kv.NoPage] (unless it is that child's page).
// A new child that starts with the tokens of unpinned tail leaves makes these
// redundant: they go, and their pages are appended to freed.
//
// The result is the node at which the whole pages end, splitting one if they
// end inside it, for [Cache.PinNode]; Root if tokens are less than a page.
// The path becomes the most recently used. A page list of the wrong length or
// with a negative id panics; a page that the tree holds elsewhere is a bug too,
// which only [Cache.Check] finds. Cost: reading the tokens held once and their
// pages, a copy of the new ones, and per visited node with several children a
// binary search over these.
func (c *Cache) Insert(ns kv.Namespace, tokens []kv.Token, pages []kv.PageID, freed []kv.PageID) (NodeID, []kv.PageID) {
	if want := kv.CeilPages(len(tokens), c.cfg.PageTokens); len(pages) != want {
		panic(fmt.Sprintf("radixcache: Insert: %d pages for %d tokens, want %d", len(pages), len(tokens), want))
	}
	if len(tokens) == 0 {
		c.counts.Inserts++
		return Root, freed
	}
	whole := c.floorTokens(len(tokens))
	var h held
	if sp := c.spaces[ns]; sp != nil {
		h = c.reach(sp.root, tokens[:whole], pages)
	}
	checkPages(pages, h.same)

	// From here on nothing is the caller's fault.
	before := len(freed)
	c.counts.Inserts++
	c.clock++
	at := c.openSpace(ns)
	if h.tokens > 0 {
		at = h.node
		if h.offset < len(c.nodes[at].tokens) {
			at = c.split(at, h.offset)
		}
		freed = c.takeHeld(at, h.same, pages, freed)
	}
	if h.tokens < whole {
		at, freed = c.addRun(at, tokens[:whole], pages, freed)
	}
	if whole < len(tokens) {
		freed = c.addTail(at, whole, tokens[whole:], &pages[len(pages)-1], freed)
	}
	c.refresh(at)
	c.counts.ReturnedPages += uint64(len(freed) - before)
	c.verify("Insert")
	if c.isSpaceRoot(at) {
		return Root, freed
	}
	return at, freed
}

// held is how much of a key the tree holds already.
type held struct {
	node   NodeID // deepest node that the whole pages reach
	offset int    // tokens reached of its edge
	tokens int    // whole pages, in tokens
	same   int    // first pages of the caller's list that are the tree's own, of those
}

// reach walks down from a namespace's root along tokens, which are whole pages.
func (c *Cache) reach(at NodeID, tokens []kv.Token, pages []kv.PageID) held {
	var h held
	for h.tokens < len(tokens) {
		id, _, shared := c.step(at, tokens[h.tokens:])
		if id == Root {
			return h
		}
		n := &c.nodes[id]
		shared = c.floorTokens(shared)
		if from := h.tokens / c.cfg.PageTokens; h.same == from {
			h.same += wide.CommonPrefix(n.pages[:shared/c.cfg.PageTokens], pages[from:])
		}
		h.node, h.offset = id, shared
		h.tokens += shared
		if shared < len(n.tokens) {
			return h
		}
		at = id
	}
	return h
}

// takeHeld makes pages name the tree's pages, from index from on and up to the
// end of node at, and appends to freed those that differed, in order.
func (c *Cache) takeHeld(at NodeID, from int, pages, freed []kv.PageID) []kv.PageID {
	before := len(freed)
	for n := &c.nodes[at]; n.end() > from*c.cfg.PageTokens; n = &c.nodes[n.parent] {
		first := int(n.start) / c.cfg.PageTokens
		for i := len(n.pages) - 1; i >= max(0, from-first); i-- {
			if mine := &pages[first+i]; *mine != n.pages[i] {
				freed = append(freed, *mine)
				*mine = n.pages[i]
			}
		}
	}
	slices.Reverse(freed[before:])
	return freed
}

// addRun adds a leaf below at for the whole pages of tokens that lie beyond it.
func (c *Cache) addRun(at NodeID, tokens []kv.Token, pages, freed []kv.PageID) (NodeID, []kv.PageID) {
	start := c.nodes[at].end()
	id := c.attach(node{
		tokens: slices.Clone(tokens[start:]),
		pages:  slices.Clone(pages[start/c.cfg.PageTokens : len(tokens)/c.cfg.PageTokens]),
		space:  c.nodes[at].space,
		stamp:  c.clock,
		start:  int32(start),
		parent: at,
	})
	c.journalStored(id, tokens)
	return id, c.dropPrefixTails(id, freed)
}

// addTail adds a tail leaf below at, or hands *page back if a child holds the
// tokens already. A tail leaf of exactly these tokens becomes recent; a longer
// child does not, as it was not used in whole.
func (c *Cache) addTail(at NodeID, start int, tail []kv.Token, page *kv.PageID, freed []kv.PageID) []kv.PageID {
	place, _ := c.find(at, tail)
	if kid := c.kidAt(at, place); kid != Root {
		n := &c.nodes[kid]
		if wide.CommonPrefix(n.tokens, tail) == len(tail) {
			if len(n.tokens) == len(tail) {
				c.touch(kid)
			}
			if n.pages[0] != *page {
				freed = append(freed, *page)
				*page = kv.NoPage
			}
			return freed
		}
	}
	id := c.attach(node{
		tokens: slices.Clone(tail),
		pages:  []kv.PageID{*page},
		space:  c.nodes[at].space,
		stamp:  c.clock,
		start:  int32(start),
		parent: at,
	})
	c.touch(id)
	return c.dropPrefixTails(id, freed)
}

// dropPrefixTails removes the unpinned tail leaves beside id whose tokens id
// starts with. All stand below id, but not side by side: pinned ones stay, and
// other children that share the same tokens sort in between. Each round goes
// down to the longest prefix of id that can still be there, so there are at
// most 2*PageTokens rounds of one binary search, and mostly one.
func (c *Cache) dropPrefixTails(id NodeID, freed []kv.PageID) []kv.PageID {
	if c.counts.Tails == 0 {
		return freed
	}
	parent, prefix := c.nodes[id].parent, c.firstPage(id)
	at := c.placeOf(parent, id)
	for {
		low, ok := c.before(parent, at)
		if !ok {
			return freed
		}
		lower := c.kidAt(parent, low)
		n := &c.nodes[lower]
		shared := wide.CommonPrefix(n.tokens, prefix)
		if shared == 0 {
			return freed
		}
		prefix = prefix[:shared]
		if shared < len(n.tokens) {
			// Not a prefix itself. All between lower and where prefix belongs
			// start with prefix, so only the first of them can be it.
			var found bool
			if at, found = c.find(parent, prefix); found {
				at.i++
			}
			continue
		}
		at = low
		if n.pins > 0 {
			continue
		}
		if n.pages[0] == c.nodes[id].pages[0] {
			panic(fmt.Sprintf("radixcache: Insert: page %d is that of tail leaf %d already", n.pages[0], lower))
		}
		freed = c.detach(lower, freed)
		c.counts.SupersededTails++
		at, _ = c.find(parent, prefix) // the siblings have moved
	}
}

// checkPages panics on a caller's bug before anything has changed. The first
// same pages are the tree's own.
func checkPages(pages []kv.PageID, same int) {
	for i, p := range pages[same:] {
		if p < 0 {
			panic(fmt.Sprintf("radixcache: Insert: pages[%d] is %d", same+i, p))
		}
	}
}

// end is the number of tokens from the root to the end of the edge.
func (n *node) end() int { return int(n.start) + len(n.tokens) }
