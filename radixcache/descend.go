package radixcache

import (
	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// Partial is a page of the tree whose first tokens continue the whole pages of
// a [Match]. It belongs to the tree and may only be copied from. Pin Node by
// [Cache.PinNode] while the copy runs; a Pin of the match leaves Node valid.
//
// Example with pages of 4: the tree holds 1 2 3 4 5 6 7 8, the key is 1 2 3 4 5 6 9.
// The match has Tokens 4, and a Partial of 2 tokens: copying the page of 5 6 7 8
// leaves one token to compute instead of three.
type Partial struct {
	Node   NodeID
	Tokens int // shared with the key: 1 <= Tokens < PageTokens
}

// cursor is a place in the tree: offset tokens into the edge of node, which may
// be the root of a space. tokens counts all tokens before the place.
type cursor struct {
	node   NodeID
	offset int
	tokens int
}

// ascend returns the cursor after the first tokens of the path to a node.
func (s *slab) ascend(id NodeID, tokens int) cursor {
	for int(s.nodes[id].start) >= tokens {
		id = s.nodes[id].parent
	}
	return cursor{id, tokens - int(s.nodes[id].start), tokens}
}

// appendPath appends the pages of the first tokens of the path to a node. It walks
// from the node up, so it first makes room for all pages and fills it from the
// end. A quarter more room is allocated, as callers append a request's new pages.
func (s *slab) appendPath(id NodeID, tokens int, dst []kv.PageID) []kv.PageID {
	page := s.cfg.PageTokens
	count := tokens / page
	base := len(dst)
	if cap(dst)-base < count {
		dst = append(make([]kv.PageID, 0, base+count+count/4), dst...)
	}
	dst = dst[:base+count]
	for id != Root {
		n := &s.nodes[id]
		if start := int(n.start) / page; start < count {
			n.pages.CopyTo(dst[base+start:], 0)
		}
		id = n.parent
	}
	return dst
}

// descend walks on from a cursor within its space, as far as whole pages match.
// With reads, as for a Match, it stops before distrusted nodes, and looks for a
// partial page where the whole pages end.
func (s *slab) descend(cur cursor, tokens []kv.Token, reads bool) (cursor, Partial) {
	part := reads && s.cfg.PageTokens > 1
	if n := &s.nodes[cur.node]; cur.offset < n.tokens.Len() {
		shared := wide.CommonPrefix(n.tokens.Slice()[cur.offset:], tokens[cur.tokens:])
		whole := s.floorTokens(shared)
		cur.offset += whole
		cur.tokens += whole
		if cur.offset < n.tokens.Len() {
			return cur, partOf(cur.node, shared-whole)
		}
	}
	for cur.tokens < len(tokens) {
		rest := tokens[cur.tokens:]
		id, shared := s.step(cur.node, rest)
		if id == Root {
			if !part {
				return cur, Partial{}
			}
			return cur, s.beside(cur.node, rest)
		}
		n := &s.nodes[id]
		if reads && n.flags&distrusted != 0 {
			return cur, Partial{}
		}
		if shared == n.tokens.Len() {
			cur = cursor{id, shared, cur.tokens + shared}
			continue
		}
		whole := s.floorTokens(shared)
		return cursor{id, whole, cur.tokens + whole}, partOf(id, shared-whole)
	}
	return cur, Partial{}
}

// partOf returns the Partial of a node whose page after the matched whole pages
// shares this many tokens; the zero Partial if none.
func partOf(id NodeID, shared int) Partial {
	if shared == 0 {
		return Partial{}
	}
	return Partial{Node: id, Tokens: shared}
}

// step returns the child that shares at least a whole page with rest, and how many
// tokens it shares in all; Root if there is none. No two siblings have the same
// first page, so there is at most one.
func (s *slab) step(parent NodeID, rest []kv.Token) (id NodeID, shared int) {
	n, page := &s.nodes[parent], s.cfg.PageTokens
	if len(rest) < page {
		return Root, 0
	}
	if n.fork == nil {
		return s.stepFew(n, rest)
	}
	hash := hashFirst(rest, page)
	for slot := hash; ; {
		if id = n.fork.index.lookup(hash, &slot); id == Root {
			return Root, 0
		}
		if shared = s.sharedWith(id, rest); shared >= page {
			return id, shared
		}
	}
}

// sharedWith returns the number of tokens that a child's edge and rest have in common.
func (s *slab) sharedWith(id NodeID, rest []kv.Token) int {
	return wide.CommonPrefix(s.nodes[id].tokens.Slice(), rest)
}

// stepFew is step for children that the node names itself. It reads only children
// whose key fits, mostly one or none.
func (s *slab) stepFew(n *node, rest []kv.Token) (NodeID, int) {
	key := uint32(rest[n.skip])
	for _, k := range n.few[:n.count] {
		if k.key == key {
			if shared := s.sharedWith(k.id, rest); shared >= s.cfg.PageTokens {
				return k.id, shared
			}
		}
	}
	return Root, 0
}

// beside returns the Partial of the child that shares most tokens with rest, where
// no child shares a whole page. In a fork the keys alone mostly decide it.
func (s *slab) beside(parent NodeID, rest []kv.Token) Partial {
	if f := s.nodes[parent].fork; f != nil {
		if id, shared, ok := f.beside(rest); ok {
			if shared == 0 {
				return Partial{}
			}
			return Partial{Node: id, Tokens: shared}
		}
	}
	at, _ := s.find(parent, rest)
	return s.nearest(parent, at, rest)
}

// nearest returns the Partial of the child that shares most tokens with rest. at is
// the place of rest among the children. In sorted order the common prefix only gets
// shorter away from there, so the two neighbours are enough; at equality the lower
// one wins. Often a neighbour's key shows that it shares nothing, or no more than
// the other, and its tokens are not read.
func (s *slab) nearest(parent NodeID, at place, rest []kv.Token) Partial {
	var best Partial
	low, ok := s.before(parent, at)
	for range 2 {
		if ok && s.mostShared(parent, low, rest) > best.Tokens {
			id := s.kidAt(parent, low)
			n := &s.nodes[id]
			if shared := wide.CommonPrefix(n.tokens.Slice(), rest); shared > best.Tokens {
				best = Partial{Node: id, Tokens: shared}
			}
		}
		low, ok = at, s.kidAt(parent, at) != Root
	}
	return best
}

// mostShared returns an upper bound on the tokens that the child at a place shares
// with rest, from its key alone: if the tokens at index skip differ it shares
// at most skip tokens, otherwise the bound is a page.
func (s *slab) mostShared(parent NodeID, at place, rest []kv.Token) int {
	n := &s.nodes[parent]
	skip, key := int(n.skip), n.few[min(at.i, fewKids-1)].key
	if n.fork != nil {
		r := &n.fork.runs[at.r]
		if at.i == len(r.kids) {
			return s.cfg.PageTokens // the first child of the next run, whose key has another skip
		}
		skip, key = r.skip, r.kids[at.i].key
	}
	if skip < len(rest) && uint32(rest[skip]) != key {
		return skip
	}
	return s.cfg.PageTokens
}
