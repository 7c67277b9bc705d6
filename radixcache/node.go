package radixcache

import (
	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// node is one run of tokens between two forks. There are three kinds: the
// unexposed root of a [space] (no tokens, flag isRoot), runs of whole pages,
// and tail leaves (fewer tokens than a page, one page, no children).
//
// On 64-bit machines it is two cache lines, the first of which is all that a
// match reads. What a walk writes, it writes to the node at which it ends: what
// the nodes above have to know of it they learn when that one is removed and
// they may become leaves themselves (absorb). Until then nobody asks them.
type node struct {
	tokens wide.Vec[kv.Token] // the edge [start, start+len), owned, never aliased
	fork   *fork              // the children if there are more than fewKids
	start  int32              // tokens before the edge
	parent NodeID             // Root for the root of a space without anchor
	pins   int32              // handles held on the node itself, if any: 1; plus the children with pins
	few    [fewKids]kid       // the children if fork is nil, ascending by first page
	count  uint8              // of few
	flags  uint8
	skip   uint16 // tokens that all of few share, at least; 0 with less than two

	pages  wide.Packed[kv.PageID] // len = CeilPages(len(tokens)), ascending token position
	hashes *[]kv.BlockHash        // of the blocks whose last token is in the edge, in order; nil if none
	space  *space                 // nil in an unused slot
	use                           // of the requests that ended here, or below in absorbed children
	held   int32                  // handles held on this node itself
	gen    uint32                 // how often the slot was freed: tells a node from an earlier one of that id
}

// Flags of a node.
const (
	isRoot     = 1 << iota // of a space
	hasDoors               // private spaces begin at its end: see space
	inLine                 // in its order's line
	queued                 // as a link: see join.go
	distrusted             // see distrust.go
)

// end is the number of tokens from the root to the end of the edge.
func (n *node) end() int { return int(n.start) + n.tokens.Len() }

// isLeaf reports whether nothing stands below a node.
func (n *node) isLeaf() bool { return n.count == 0 && n.fork == nil && n.flags&hasDoors == 0 }
