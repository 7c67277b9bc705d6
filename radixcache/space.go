package radixcache

import "github.com/coppice-llm/coppice/kv"

// size is the number of tokens and pages in a set of nodes.
type size struct{ tokens, pages int }

// add adds tokens and pages; negative numbers subtract.
func (s *size) add(tokens, pages int) {
	s.tokens += tokens
	s.pages += pages
}

// space is one subtree that belongs to a namespace: the namespace's whole tree, or, with
// an anchor, its private tokens after a public prefix. A private space begins at the end
// of its anchor, a node of the public space, and keeps the anchor from being a leaf. But
// its root is not among the anchor's children, so no other namespace can find it, and a
// match never copies a partial page across the boundary.
type space struct {
	ns     kv.Namespace
	root   NodeID
	anchor NodeID    // node at whose end a private space begins; Root for a namespace's own tree
	hasher kv.Hasher // hasher at the start of a sequence; each use copies it
	order  *order    // order in which its leaves are evicted
	dead   bool      // flushed: matches don't find it, and it lasts until Evict has removed it

	evictable, protected size
	hits                 uint64 // number of tokens that pins and inserts found here
}

// spaceKey identifies a space that was not flushed.
type spaceKey struct {
	ns     kv.Namespace
	anchor NodeID
}

// Usage has the tokens and pages that one namespace holds, and the tokens that
// requests found in it.
type Usage struct {
	EvictableTokens, ProtectedTokens int
	EvictablePages, ProtectedPages   int
	// HitTokens counts the tokens in whole pages of reuses that ended in the
	// namespace, since it last began to hold something.
	HitTokens uint64
}

// usage returns the Usage of one space; nil has none.
func (sp *space) usage() Usage {
	if sp == nil {
		return Usage{}
	}
	return Usage{sp.evictable.tokens, sp.protected.tokens, sp.evictable.pages, sp.protected.pages, sp.hits}
}
