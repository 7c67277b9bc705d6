package radixcache

import (
	"fmt"

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
	r := route{ns: &key.Namespace}
	r.tokens, r.public, r.raw = c.readIn(&key)
	var cur cursor
	if len(r.tokens) > 0 {
		cur.node = c.openSpace(r.outer(), Root)
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
	c.links.spared = at // it is to live when the caller gets it
	c.tidy()
	c.links.spared = Root
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
	r := route{ns: &key.Namespace}
	r.tokens, r.public, r.raw = c.readIn(&key)
	if len(r.tokens) < cur.tokens { // by a medium that does not fit: nothing comes after the handle
		c.media.release()
		return handle, freed
	}
	if handle != Root {
		if ns := c.nodes[handle].space.ns; ns != *r.ns && (ns != r.outer() || cur.tokens > r.public) {
			panic(fmt.Sprintf("radixcache: Extend: node %d is of namespace %+v, the key of %+v, %d tokens of it public", handle, ns, *r.ns, r.public))
		}
	}
	if handle == Root && len(r.tokens) > 0 {
		cur.node = c.openSpace(r.outer(), Root)
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
