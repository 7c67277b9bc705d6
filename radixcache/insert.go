package radixcache

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// Insert gives the tree the pages of a computed sequence; it adopts those that
// it lacks. pages: len = CeilPages(len(key.Tokens)), ascending token position.
// The caller keeps both slices; tokens are copied.
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
// redundant: they go, and their pages are appended to freed. So do pages that
// the namespace then holds beyond its [Quota]; the key's own tail may be among
// them. A medium that does not fit the tokens cuts the key short: pages behind it
// stay the caller's.
//
// The result is the node at which the whole pages end, splitting one if they
// end inside it, for [Cache.PinNode]; Root if tokens are less than a page.
// The path becomes the most recently used, and what was found of it counts as
// reused. A page list of the wrong length or with a negative id panics; a page
// that the tree holds elsewhere is a bug too, which only [Cache.Check] finds.
// Cost: reading the tokens held once and their pages, a copy of the new ones,
// and per visited node with several children a binary search over these.
func (c *Cache) Insert(key Key, pages []kv.PageID, freed []kv.PageID) (NodeID, []kv.PageID) {
	c.checkPages(&key, pages, 0)
	r := c.routeIn(&key)
	var cur cursor
	if len(r.tokens) > 0 {
		cur.node = c.open(r.outer, Root)
	}
	at, base, reused, freed := c.insert(cur, &r, pages, freed)
	c.lookedUp(len(key.Tokens), reused)
	if reused > 0 {
		n := &c.nodes[base]
		n.reused(1)
		n.space.hits += uint64(reused)
		c.rerank(base)
	}
	c.media.release()
	freed = c.keepQuota(&r, at, freed)
	c.spared = at // it is to live when the caller gets it
	c.tidy()
	c.spared = Root
	if at != Root && c.isLink(&c.nodes[at]) {
		c.loosen(at)
	}
	c.verify("Insert")
	c.Observe(key)
	return at, freed
}

// Extend is Insert for a sequence whose beginning is pinned: handle is the
// result of Pin or of an earlier Extend, and the key begins with all that it
// stands for. Only what comes after is looked at, of key and of pages, so that
// a request that publishes as it goes pays for each token once. The pin moves
// from handle to the result. It counts as no reuse. What is added to a tree that
// was flushed meanwhile dies with it.
//
// With Root for a handle it starts from token 0.
func (c *Cache) Extend(handle NodeID, key Key, pages []kv.PageID, freed []kv.PageID) (NodeID, []kv.PageID) {
	var cur cursor
	if handle != Root {
		n := c.live(handle, "Extend")
		if n.held == 0 || n.end() > len(key.Tokens) || c.isTail(n) {
			panic(fmt.Sprintf("radixcache: Extend: node %d ends at token %d and has %d handles; the key has %d tokens", handle, n.end(), n.held, len(key.Tokens)))
		}
		cur = cursor{handle, n.tokens.Len(), n.end()}
	}
	c.checkPages(&key, pages, cur.tokens/c.cfg.PageTokens)
	r := c.routeIn(&key)
	if len(r.tokens) < cur.tokens { // by a medium that does not fit: nothing comes after the handle
		c.media.release()
		return handle, freed
	}
	if handle != Root {
		if ns := c.nodes[handle].space.ns; ns != r.ns && (ns != r.outer || cur.tokens > r.public) {
			panic(fmt.Sprintf("radixcache: Extend: node %d is of namespace %+v, the key of %+v, %d tokens of it public", handle, ns, r.ns, r.public))
		}
	}
	if handle == Root && len(r.tokens) > 0 {
		cur.node = c.open(r.outer, Root)
	}
	at, _, _, freed := c.insert(cur, &r, pages, freed)
	if at != handle {
		if at != Root {
			c.pinPath(at)
		}
		if handle != Root {
			c.unpinPath(handle)
		}
	}
	c.media.release()
	freed = c.keepQuota(&r, at, freed)
	c.tidy()
	c.verify("Extend")
	return at, freed
}

// insert goes on from a cursor and adds what is missing. It returns the node
// where the whole pages end, the one where those that were there end, and how
// many tokens these are, from token 0 on.
func (c *Cache) insert(cur cursor, r *route, pages, freed []kv.PageID) (at, base NodeID, reused int, _ []kv.PageID) {
	c.counts.Inserts++
	if len(r.tokens) == 0 {
		return Root, Root, 0, freed
	}
	before, from := len(freed), cur.tokens
	whole := c.floorTokens(len(r.tokens))
	cut := *r
	cut.tokens = r.tokens[:whole]
	cur, _ = c.follow(cur, &cut, false)
	reused = cur.tokens
	c.clock++
	at = cur.node
	if cur.offset > 0 && cur.offset < c.nodes[at].tokens.Len() {
		at = c.split(at, cur.offset)
	}
	base = c.outer(at)
	freed = c.takeHeld(at, from/c.cfg.PageTokens, reused/c.cfg.PageTokens, pages, freed)
	if done := reused; done < r.public {
		at, freed = c.addRun(at, done, r.tokens[:r.public], pages, freed)
	}
	if r.public > 0 && c.nodes[at].end() == r.public && c.nodes[at].space.ns != r.ns && len(r.tokens) > r.public {
		at = c.open(r.ns, at)
	}
	if done := c.nodes[at].end(); done < whole {
		at, freed = c.addRun(at, done, r.tokens[:whole], pages, freed)
	}
	if whole < len(r.tokens) {
		freed = c.addTail(at, whole, r.tokens[whole:], &pages[whole/c.cfg.PageTokens], freed)
	}
	c.touch(at)
	c.orphaned(at) // a space that was opened for nothing
	c.counts.ReturnedPages += uint64(len(freed) - before)
	return c.outer(at), base, reused, freed
}

// takeHeld makes pages name the tree's pages, in [from, to), where to is the
// end of node at, and appends to freed those that differed, in order.
func (c *Cache) takeHeld(at NodeID, from, to int, pages, freed []kv.PageID) []kv.PageID {
	before := len(freed)
	for ; from < to; at = c.nodes[at].parent {
		n := &c.nodes[at]
		start := int(n.start) / c.cfg.PageTokens
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

// addRun adds a leaf below node at for the whole pages of tokens from start on,
// where that ends.
func (c *Cache) addRun(at NodeID, start int, tokens []kv.Token, pages, freed []kv.PageID) (NodeID, []kv.PageID) {
	run, list := tokens[start:], pages[start/c.cfg.PageTokens:len(tokens)/c.cfg.PageTokens]
	id := c.attach(node{
		tokens: wide.VecOf(run),
		pages:  wide.PackedOf(list),
		space:  c.nodes[at].space,
		start:  int32(start),
		parent: at,
	})
	c.journalStored(id, tokens)
	return id, c.dropTails(at, run[:c.cfg.PageTokens], list[0], freed)
}

// addTail adds a tail leaf below at, or hands *page back if a child holds the
// tokens already. A tail leaf of exactly these tokens becomes recent; a longer
// child does not, as it was not used in whole.
func (c *Cache) addTail(at NodeID, start int, tail []kv.Token, page *kv.PageID, freed []kv.PageID) []kv.PageID {
	place, _ := c.find(at, tail)
	if kid := c.kidAt(at, place); kid != Root {
		n := &c.nodes[kid]
		if wide.CommonPrefix(n.tokens.Slice(), tail) == len(tail) {
			if n.tokens.Len() == len(tail) {
				c.touch(kid)
			}
			if held := n.pages.At(0); held != *page {
				freed = append(freed, *page)
				*page = kv.NoPage
			}
			return freed
		}
	}
	id := c.attach(node{
		tokens: wide.VecOf(tail),
		pages:  wide.PackedOf([]kv.PageID{*page}),
		space:  c.nodes[at].space,
		start:  int32(start),
		parent: at,
	})
	c.touch(id)
	return c.dropTails(at, tail, *page, freed)
}

// dropTails removes the unpinned tail leaves below a node that prefix, a page of
// tokens or a tail held in page, starts with and is not itself. Seen from where
// prefix belongs all are lower, but not side by side: pinned ones stay, and
// other children that share the same tokens sort in between. Each round goes
// down to the longest prefix that can still be there, so there are at most
// 2*PageTokens rounds of one binary search, and mostly one.
func (c *Cache) dropTails(parent NodeID, prefix []kv.Token, page kv.PageID, freed []kv.PageID) []kv.PageID {
	if c.counts.Tails == 0 {
		return freed
	}
	at, _ := c.find(parent, prefix)
	for {
		low, ok := c.before(parent, at)
		if !ok {
			return freed
		}
		lower := c.kidAt(parent, low)
		n := &c.nodes[lower]
		shared := wide.CommonPrefix(n.tokens.Slice(), prefix)
		if shared == 0 {
			return freed
		}
		prefix = prefix[:shared]
		if shared < n.tokens.Len() {
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
		if n.pages.At(0) == page {
			panic(fmt.Sprintf("radixcache: Insert: page %d is that of tail leaf %d already", page, lower))
		}
		c.noteRemoval(lower, BySuperseding, n.tokens.Len(), 1)
		freed = c.detach(lower, freed)
		at, _ = c.find(parent, prefix) // the siblings have moved
	}
}

// checkPages panics on a caller's bug before anything has changed.
func (c *Cache) checkPages(key *Key, pages []kv.PageID, from int) {
	if want := kv.CeilPages(len(key.Tokens), c.cfg.PageTokens); len(pages) != want {
		panic(fmt.Sprintf("radixcache: %d pages for %d tokens, want %d", len(pages), len(key.Tokens), want))
	}
	for i, p := range pages[from:] {
		if p < 0 {
			panic(fmt.Sprintf("radixcache: pages[%d] is %d", from+i, p))
		}
	}
	var all kv.Token
	for _, t := range key.Tokens[from*c.cfg.PageTokens:] {
		all |= t
	}
	if all >= MediaToken {
		panic(fmt.Sprintf("radixcache: a key has tokens that are not below MediaToken, %d", MediaToken))
	}
}
