package radixcache

import "github.com/coppice-llm/coppice/kv"

// size is the number of tokens and pages in a set of nodes.
type size struct{ tokens, pages int }

// add adds tokens and pages; negative numbers subtract.
func (s *size) add(tokens, pages int) {
	s.tokens += tokens
	s.pages += pages
}

// space is one subtree that belongs to a namespace. It is either the namespace's whole tree,
// or a private space: the namespace's tokens after one public prefix. A private space begins
// at the end of its anchor, a node of the namespace without salt. The anchor is no leaf while
// the private space exists. But the root of the private space is not among the anchor's
// children, so no other namespace can find it, and a Partial is never a page of another
// space.
type space struct {
	ns     kv.Namespace
	root   NodeID
	anchor NodeID    // node at whose end a private space begins; Root for a namespace's own tree
	hasher kv.Hasher // hasher of the namespace before the first block; each use copies it
	order  *order    // order in which its leaves are evicted
	dead   bool      // flushed: matches don't find it, and it exists until its last node is evicted

}

// spaceKey identifies a space that was not flushed.
type spaceKey struct {
	ns     kv.Namespace
	anchor NodeID
}
