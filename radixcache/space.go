package radixcache

import "github.com/coppice-llm/coppice/kv"

// size measures a set of nodes.
type size struct{ tokens, pages int }

func (s *size) add(tokens, pages int) {
	s.tokens += tokens
	s.pages += pages
}

// space is one subtree whose root stands for a namespace: the whole of it, or,
// with an anchor, what the namespace has to itself behind a public prefix. Such
// a private space begins at the end of its anchor, a node of the public space,
// and keeps it from being a leaf; but it is not among its children, so that no
// other namespace can find it.
type space struct {
	ns     kv.Namespace
	root   NodeID
	anchor NodeID    // Root for a whole namespace
	hasher kv.Hasher // at the start of a sequence; copied, never advanced
	order  *order    // in which its nodes are evicted
	dead   bool      // flushed: matches don't find it, it waits for its pins and Evict

	evictable, protected size
	hits                 uint64 // tokens that pins and inserts found here
}

// spaceKey finds a space that is alive.
type spaceKey struct {
	ns     kv.Namespace
	anchor NodeID
}

// Usage is what one namespace holds, and what was found in it.
type Usage struct {
	EvictableTokens, ProtectedTokens int
	EvictablePages, ProtectedPages   int
	HitTokens                        uint64 // of reuses that ended in it, in whole pages, since the namespace last began to hold something
}

func (sp *space) usage() Usage {
	if sp == nil {
		return Usage{}
	}
	return Usage{sp.evictable.tokens, sp.protected.tokens, sp.evictable.pages, sp.protected.pages, sp.hits}
}
