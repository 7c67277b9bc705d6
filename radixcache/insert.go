package radixcache

import (
	"fmt"
	"slices"

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
// which only [Cache.Check] finds. Cost: one comparison per token held, a copy of
// the new ones, and per visited node a binary search over its children.
func (c *Cache) Insert(ns kv.Namespace, tokens []kv.Token, pages []kv.PageID, freed []kv.PageID) (NodeID, []kv.PageID) {
	c.checkPages(tokens, pages)
	c.counts.Inserts++
	if len(tokens) == 0 {
		return Root, freed
	}
	before := len(freed)
	c.clock++
	whole := c.floorTokens(len(tokens))
	at := c.openSpace(ns)
	for pos := 0; pos < whole; {
		next, n := c.descend(at, tokens[pos:whole])
		if n == 0 {
			at, freed = c.addRun(at, tokens[:whole], pages, freed)
			break
		}
		held := c.nodes[next].pages
		freed = takeDuplicates(held, pages[pos/c.cfg.PageTokens:][:len(held)], freed)
		c.touch(next)
		at = next
		pos += n
	}
	if whole < len(tokens) {
		freed = c.addTail(at, whole, tokens[whole:], &pages[len(pages)-1], freed)
	}
	c.counts.ReturnedPages += uint64(len(freed) - before)
	c.verify("Insert")
	if c.isSpaceRoot(at) {
		return Root, freed
	}
	return at, freed
}

// descend finds the child of at that starts with rest's first page, cuts it
// to the whole pages that it shares with rest, and returns it with their
// tokens; 0 if there is none.
func (c *Cache) descend(at NodeID, rest []kv.Token) (NodeID, int) {
	kids := c.nodes[at].children
	i, found := c.find(kids, rest)
	if !found {
		return Root, 0
	}
	id, page := kids[i], c.cfg.PageTokens
	edge := c.nodes[id].tokens
	n := c.floorTokens(page + commonTokens(edge[page:], rest[page:]))
	if n < len(edge) {
		id = c.split(id, n)
	}
	return id, n
}

// takeDuplicates makes mine name the pages held, and appends to freed those
// that differed.
func takeDuplicates(held, mine, freed []kv.PageID) []kv.PageID {
	for i, page := range held {
		if mine[i] != page {
			freed = append(freed, mine[i])
			mine[i] = page
		}
	}
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
		start:  start,
		parent: at,
	})
	c.journalStored(id, tokens)
	return id, c.dropPrefixTails(id, freed)
}

// addTail adds a tail leaf below at, or hands *page back if a child holds the
// tokens already. A tail leaf of exactly these tokens becomes recent; a longer
// child does not, as it was not used in whole.
func (c *Cache) addTail(at NodeID, start int, tail []kv.Token, page *kv.PageID, freed []kv.PageID) []kv.PageID {
	kids := c.nodes[at].children
	i, _ := c.find(kids, tail)
	if i < len(kids) {
		n := &c.nodes[kids[i]]
		if commonTokens(n.tokens, tail) == len(tail) {
			if len(n.tokens) == len(tail) {
				c.touch(kids[i])
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
		start:  start,
		parent: at,
	})
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
	for at := c.childIndex(parent, id); at > 0; {
		kids := c.nodes[parent].children[:at]
		lower := kids[at-1]
		n := &c.nodes[lower]
		shared := commonTokens(n.tokens, prefix)
		if shared == 0 {
			return freed
		}
		prefix = prefix[:shared]
		if shared < len(n.tokens) {
			// Not a prefix itself. All between lower and where prefix belongs
			// start with prefix, so only the first of them can be it.
			if at, _ = c.find(kids, prefix); len(c.nodes[kids[at]].tokens) == shared {
				at++
			}
			continue
		}
		at--
		if n.pins > 0 {
			continue
		}
		if n.pages[0] == c.nodes[id].pages[0] {
			panic(fmt.Sprintf("radixcache: Insert: page %d is that of tail leaf %d already", n.pages[0], lower))
		}
		freed = c.detach(lower, freed)
		c.counts.SupersededTails++
	}
	return freed
}

// checkPages panics on a caller's bug before anything has changed.
func (c *Cache) checkPages(tokens []kv.Token, pages []kv.PageID) {
	if want := kv.CeilPages(len(tokens), c.cfg.PageTokens); len(pages) != want {
		panic(fmt.Sprintf("radixcache: Insert: %d pages for %d tokens, want %d", len(pages), len(tokens), want))
	}
	for i, p := range pages {
		if p < 0 {
			panic(fmt.Sprintf("radixcache: Insert: pages[%d] is %d", i, p))
		}
	}
}

// end is the number of tokens from the root to the end of the edge.
func (n *node) end() int { return n.start + len(n.tokens) }
