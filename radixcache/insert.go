package radixcache

import (
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// Insert gives the tree the pages of a computed sequence; the tree adopts those
// that it lacks. pages has the page of each page of key.Tokens, in order, the last
// maybe partly filled. Insert keeps neither slice.
//
// Whole pages: where the tree already holds a page for the same tokens, Insert
// overwrites pages[i] with the tree's page, and appends the caller's page to freed
// unless it is the same. So pages names the tree's pages afterwards. SGLang's insert
// returns only a prefix length instead, and its caller frees the duplicates.
//
// Example with pages of 2: the tree holds 1 2 in page 10, and a request that
// computed 1 2 3 4 by itself inserts pages 20 21. Then pages is 10 21, freed is 20.
//
// Last page: if it is not full, it becomes a tail leaf, which is never split nor
// extended, and from which callers only copy. If some child already starts with its
// tokens, Insert appends the page to freed instead and sets the last entry of pages to
// [kv.NoPage], unless the page is already that child's.
//
// Insert also appends to freed the pages of unpinned tail leaves with whose tokens a
// new child starts, as these leaves are redundant now, and the pages that the
// namespace holds beyond its [Quota], which may include the key's own tail. If a medium
// does not fit the tokens, Insert ignores the key from that medium on: the pages after
// it stay the caller's.
//
// Insert returns the node at which the whole pages end, for [Cache.PinNode], and the
// extended freed. It splits a node if the whole pages end inside it, and returns Root if
// the key has less than a page. The path becomes the most recently used, and tokens that
// the tree already held count as reused. Insert panics if pages has the wrong length or
// a negative id that the tree would adopt, or if a token is not below [MediaToken]. A
// page that the tree holds elsewhere is a caller's bug too, but only [Cache.Check] finds it.
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
		c.nodes[base].reused(1)
		c.rerank(base)
	}
	c.media.release()
	freed = c.keepQuota(&r, at, freed)
	c.links.spared = at // tidy must not remove the node that is returned
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
// of Pin or of an earlier Extend, or Root to begin at token 0. The key must begin with
// all tokens up to the handle's end. Extend reads only the tokens and pages after the
// handle, so a request that publishes its prompt in chunks pays for each token once:
// with chunks of 512, a prompt of 8,192 is read once, and not up to each of 16 ends.
//
// Extend returns the node at which the whole pages end, and freed as Insert does. It
// moves the caller's pin from handle to that node, which is never a tail leaf. It counts
// no reuse, because the chunks of one request do not show that other requests use the
// prefix. If the tree was flushed since the Pin, the new tokens go into the flushed
// tree, so KV of old weights never enters the new tree.
//
// It panics as Insert does, and if handle has no pin of its own, is a tail leaf, ends
// after the key, or has another namespace.
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
	} else if len(r.tokens) > 0 {
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

// ExtendHashed is [Cache.Extend] for a key of which the caller knows the block hashes: hashes
// has those of the key's first blocks, from token 0 on. They must be those of [kv.Hasher].
// The tree does not hash these blocks again, and their events have a Local of 0. Use it for
// KV from a lower tier, whose events needed the hashes already.
func (c *Cache) ExtendHashed(handle NodeID, key Key, hashes []kv.BlockHash, pages []kv.PageID, freed []kv.PageID) (NodeID, []kv.PageID) {
	c.known = hashes
	at, freed := c.Extend(handle, key, pages, freed)
	c.known = nil
	return at, freed
}
