package radixcache

import (
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// Insert gives the tree the pages of a computed sequence; the tree adopts those
// that it lacks. pages: len = CeilPages(len(key.Tokens)), ascending token position.
// The caller keeps both slices; tokens are copied.
//
// Whole pages: where the tree already holds the position, pages[i] is overwritten
// with the tree's page, and the caller's page is appended to freed unless it is the
// same. So pages names the tree's pages afterwards. SGLang's insert returns only a
// prefix length instead, and its caller frees the duplicates.
//
// Example with pages of 2: the tree holds 1 2 in page 10, and a request that
// computed 1 2 3 4 by itself inserts pages 20 21. Then pages is 10 21, freed is 20.
//
// A last page that is not full is a partial tail. It becomes a tail leaf, which is
// never split nor extended, and from which matches only copy. If some child already
// starts with its tokens, the page is appended to freed and the last entry of pages
// becomes [kv.NoPage] (unless it is that child's page).
//
// freed also gets the pages of unpinned tail leaves whose tokens a new child starts
// with, as they are redundant now, and the pages that the namespace holds beyond its
// [Quota], which may include the key's own tail. A medium that does not fit the
// tokens cuts the key short: the pages after it stay the caller's.
//
// Insert returns the node at which the whole pages end, for [Cache.PinNode]; it
// splits a node if they end inside it, and returns Root if the key has less than a
// page. The path becomes the most recently used, and tokens that were found count as
// reused. A page list of the wrong length, or a negative id, panics. A page that the
// tree holds elsewhere is a caller's bug too, which only [Cache.Check] finds.
//
// Cost: reading the tokens held once and their pages, a copy of the new tokens,
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
	c.links.spared = at // the caller must get a node that lives
	c.tidy()
	c.links.spared = Root
	if at != Root && c.isLink(&c.nodes[at]) {
		c.loosen(at)
	}
	c.verify("Insert")
	c.Observe(key)
	return at, freed
}

// Extend is Insert for a sequence whose beginning is pinned. handle is the result
// of Pin or of an earlier Extend, and the key begins with all tokens that it stands
// for. Only the tokens and pages after the handle are looked at, so a request that
// publishes chunk by chunk pays for each token once: with chunks of 512, a prompt of
// 8,192 is read once, and not 16 times up to each chunk's end.
//
// The pin moves from handle to the result; a tail leaf is never the result. Extend
// counts as no reuse, as the chunks of one request say nothing about other requests.
// If the tree was flushed since the Pin, the new tokens join the flushed tree and are
// removed with it, so KV of old weights never enters the new tree.
//
// With Root for a handle it starts from token 0. It panics as Insert does, and if
// handle has no pin of its own, is a tail leaf, ends after the key, or has another namespace.
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
	if len(r.tokens) < cur.tokens { // a medium that does not fit cut the key: nothing comes after the handle
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

// ExtendHashed is [Cache.Extend] for a key whose first blocks have the given hashes, from token 0
// on: the tree does not hash these again, and their events have a Local of 0. The hashes
// must be those of [kv.Hasher] for the key's tokens. Extents that a lower tier had before
// a restart are adopted like this, as their events needed the hashes already.
func (c *Cache) ExtendHashed(handle NodeID, key Key, hashes []kv.BlockHash, pages []kv.PageID, freed []kv.PageID) (NodeID, []kv.PageID) {
	c.known = hashes
	at, freed := c.Extend(handle, key, pages, freed)
	c.known = nil
	return at, freed
}
