package radixcache

import (
	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// Partial names a page of the tree whose first tokens follow the whole pages of a
// [Match] in the key. The page belongs to the tree; a caller may only copy from it.
// Pin Node by [Cache.PinNode] while the copy runs; Pin of the match leaves Node valid.
//
// Example with pages of 4: the tree holds 1 2 3 4 5 6 7 8, the key is 1 2 3 4 5 6 9.
// The match has Tokens 4 and a Partial of 2 tokens: after copying the page of 5 6 7 8,
// one token is left to compute instead of three.
type Partial struct {
	Node   NodeID
	Tokens int // shared with the key: 1 <= Tokens < PageTokens
}

// cursor is a position in the tree: after offset tokens of the edge of node, which may
// be the root of a space. tokens is the number of all tokens before the position.
type cursor struct {
	node   NodeID
	offset int
	tokens int
}

// ascend returns the cursor after as many tokens of the path to node id as the argument
// tokens says, at most to the node's end.
func (s *slab) ascend(id NodeID, tokens int) cursor {
	for int(s.nodes[id].start) >= tokens {
		id = s.nodes[id].parent
	}
	return cursor{id, tokens - int(s.nodes[id].start), tokens}
}

// appendPath returns dst with the tokens/PageTokens first pages of the path to node id
// appended. It walks from the node up, so it first makes room for all pages and fills
// it from the end. If it must allocate, it allocates a quarter more, because callers
// append a request's new pages.
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

// descend walks from cur down, within one space, as far as whole pages of the nodes
// match tokens. tokens is the key from token 0 on. It returns the cursor where the
// whole pages end. If reads is true, as for a Match, it stops before distrusted nodes,
// and also returns the partial page there. If reads is false, callers ignore the Partial.
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

// partOf returns the Partial for a page of node id that shares this many tokens with
// the key, or the zero Partial if shared is 0.
func partOf(id NodeID, shared int) Partial {
	if shared == 0 {
		return Partial{}
	}
	return Partial{Node: id, Tokens: shared}
}

// step returns the child that shares at least a whole page with rest, the key's tokens
// from the parent's end on, and how many tokens the two share in all. It returns Root
// if there is no such child. There is at most one, as no two siblings have the same
// first page.
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

// stepFew is step for a node without a fork. rest has at least a page. It reads only
// children whose key equals that of rest, mostly one or none.
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

// beside returns the Partial of the child that shares most tokens with rest, if no
// child shares a whole page. With a fork, mostly the keys decide it without reading a
// child.
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
// the place of rest among the children, which are sorted: the farther a child is from
// there, the shorter the prefix that it shares with rest. So the children right before
// and after at are enough; if both share equally many tokens, the lower child wins.
// Often a child's key shows that it cannot share more than the other, and nearest does
// not read its tokens.
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
// with rest, from the child's key alone: if the key differs from rest's token at index
// skip, the bound is skip, otherwise a page.
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
