package radixcache

import (
	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// node is a node of the tree with its edge: the tokens from the end of its parent to its
// own end. There are three kinds: the root of a [space], which callers never see (no
// tokens, flag isRoot), runs of whole pages, and tail leaves (fewer tokens than a page,
// one page, no children).
//
// On 64-bit machines a node is 128 bytes, two cache lines of 64, and a match reads
// only the first: tokens 16, fork 8, start, parent and pins 12, few 24, and count,
// flags and skip 4. The second has pages 16, hashes 8, space 8, use 24, held and
// gen 8.
//
// A request writes recency and reuse only to the node at which its walk ends. The nodes
// above need these values only once they are leaves. By then every node below them was
// removed, and a removed node passes its values to its parent (absorb).
type node struct {
	tokens wide.Vec[kv.Token] // the edge [start, start+len), owned, never aliased
	fork   *fork              // the children; nil if few has them, as it can up to fewKids
	start  int32              // number of tokens before the edge
	parent NodeID             // Root for the root of a space without anchor
	pins   int32              // 1 if held > 0, plus the number of children with pins
	few    [fewKids]kid       // the children if fork is nil, ascending by first page
	count  uint8              // number of entries of few in use
	flags  uint8              // isRoot and so on, below
	skip   uint16             // lower bound on the first tokens that all of few share; 0 for fewer than two

	pages  wide.Packed[kv.PageID] // len = CeilPages(len(tokens)), ascending token position
	hashes *[]kv.BlockHash        // hashes of the blocks whose last token is in the edge, in order; nil if none
	space  *space                 // the subtree that the node is in; nil in an unused slot
	use                           // by requests that ended here, or in children that were absorbed
	held   int32                  // number of handles held on this node itself
	gen    uint32                 // number of times that the slot was freed: distinguishes nodes of the same id
}

// Flags of a node.
const (
	isRoot     = 1 << iota // the node is the root of a space
	isAnchor               // private spaces begin at the node's end: see space
	inLine                 // the node is in its order's line: see eviction
	queued                 // the node is queued as a link: see links.go
	distrusted             // the node's KV may be wrong: see distrust.go
)

// end returns the number of tokens from the root to the end of the edge.
func (n *node) end() int { return int(n.start) + n.tokens.Len() }

// isLeaf reports whether a node has nothing below it: no children and no private
// space. Only leaves can be evicted; otherwise tokens below would lose their prefix.
func (n *node) isLeaf() bool { return n.count == 0 && n.fork == nil && n.flags&isAnchor == 0 }
