package view

import (
	"math"
	"slices"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/kv"
)

// pruner selects the nodes of a tree to show. It keeps its scratch memory from tree to tree.
type pruner struct {
	limit, depth int // of the shown nodes
	text         func([]kv.Token) string

	at     []int32   // by node id: 1 + index, 0: none; ids are dense because the cache reuses them
	sums   []subtree // by index in the tree's list
	keys   []uint64  // worth and index of each node, see choose
	more   []int32   // by index + 1, 0 for roots: 1 + position in shown of the node that sums up the cut children
	spaces map[kv.Namespace]int
	shown  []Node
}

// subtree sums up a node and everything below it.
type subtree struct {
	parent int32 // index; -1 for a root
	depth  int32 // 1 for roots
	nodes  int
	tokens int
	pages  int
	reuses uint64
	stamp  uint64 // latest use
	pinned bool
	kept   bool
}

// maxTextBytes bounds Node.Text.
const maxTextBytes = 120

// prune returns the nodes of t to show, at most p.limit. They are valid until the next call. It
// costs O(n log n) for n nodes in t.
func (p *pruner) prune(t *coppice.Tree) []Node {
	oldest := p.sum(t.Nodes)
	newest := uint64(0)
	for i := range p.sums {
		newest = max(newest, p.sums[i].stamp)
	}
	p.choose()
	p.shown = p.shown[:0]
	p.spaces = map[kv.Namespace]int{}
	p.more = resized(p.more, len(t.Nodes)+1)
	last, space := kv.Namespace{}, -1
	for i := range t.Nodes {
		n, s := &t.Nodes[i], &p.sums[i]
		if space < 0 || n.Namespace != last {
			last, space = n.Namespace, p.space(n.Namespace)
		}
		heat := 1.0
		if newest > oldest {
			heat = math.Round(1000*float64(s.stamp-oldest)/float64(newest-oldest)) / 1000
		}
		switch {
		case s.kept:
			out := Node{ID: uint32(n.ID), Parent: uint32(n.Parent), Space: space, Start: n.Start, Tokens: n.Tokens,
				Pages: n.Pages, Hits: n.Hits, Reuses: s.reuses, Heat: heat, Pins: n.Pins, Tail: n.Tail}
			if p.text != nil {
				out.Text = p.preview(n.First)
				out.TextTotal = len(n.First) == n.Tokens && len(out.Text) <= maxTextBytes
			}
			p.shown = append(p.shown, out)
		case s.parent < 0 || p.sums[s.parent].kept: // topmost node of a subtree that is cut
			if p.more[s.parent+1] == 0 {
				p.shown = append(p.shown, Node{Parent: uint32(n.Parent), Space: space, Start: n.Start})
				p.more[s.parent+1] = int32(len(p.shown))
			}
			sum := &p.shown[p.more[s.parent+1]-1]
			sum.More += s.nodes
			sum.Tokens += s.tokens
			sum.Pages += s.pages
			sum.Reuses += s.reuses
			sum.Heat = max(sum.Heat, heat)
			if s.pinned {
				sum.Pins = 1
			}
		}
	}
	return p.shown
}

// sum fills p.sums and returns the stamp of the least recently used node.
func (p *pruner) sum(nodes []coppice.TreeNode) (oldest uint64) {
	top := 0
	for i := range nodes {
		top = max(top, int(nodes[i].ID))
	}
	p.at = resized(p.at, top+1)
	p.sums = slices.Grow(p.sums[:0], len(nodes))
	oldest = math.MaxUint64
	for i := range nodes {
		n := &nodes[i]
		s := subtree{parent: -1, depth: 1, nodes: 1, tokens: n.Tokens, pages: n.Pages, reuses: n.Hits, stamp: n.Stamp, pinned: n.Pins > 0}
		if up := p.at[n.Parent]; n.Parent != 0 && up > 0 {
			s.parent, s.depth = up-1, p.sums[up-1].depth+1
		}
		p.at[n.ID] = int32(i) + 1
		p.sums = append(p.sums, s)
		oldest = min(oldest, n.Stamp)
	}
	for i := len(p.sums) - 1; i >= 0; i-- { // children before parents
		s := &p.sums[i]
		if s.parent < 0 {
			continue
		}
		up := &p.sums[s.parent]
		up.nodes += s.nodes
		up.tokens += s.tokens
		up.pages += s.pages
		up.reuses += s.reuses
		up.stamp = max(up.stamp, s.stamp)
		up.pinned = up.pinned || s.pinned
	}
	return oldest
}

// choose sets the field kept of the most valuable nodes: of all within the depth, or if these are
// over the limit of just under half as many, because each kept node may need another one below it
// that sums up its cut children. A pinned node is worth more than any other; among pinned nodes, and
// among the others, the worth is 64 * reuses + tokens. A parent is worth at least as much as each of
// its children, since all figures of a parent include its subtree. Of two nodes of equal worth the
// earlier one is kept, which is the parent. So a node is never kept without its parent.
func (p *pruner) choose() {
	p.keys = p.keys[:0]
	for i := range p.sums {
		s := &p.sums[i]
		if int(s.depth) > p.depth {
			continue
		}
		worth := min(s.reuses*64+uint64(s.tokens), 1<<38-1)
		if s.pinned {
			worth |= 1 << 38
		}
		p.keys = append(p.keys, worth<<24|uint64(1<<24-1-i))
	}
	if len(p.sums) > p.limit {
		slices.Sort(p.keys)
		p.keys = p.keys[max(len(p.keys)-(p.limit-1)/2, 0):]
	}
	for _, key := range p.keys {
		p.sums[1<<24-1-key&(1<<24-1)].kept = true
	}
}

// resized returns a slice of n zeros. It uses the memory of s if that is large enough.
func resized(s []int32, n int) []int32 {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// space returns the number of the namespace ns; namespaces are numbered from 0 in order of
// appearance.
func (p *pruner) space(ns kv.Namespace) int {
	n, ok := p.spaces[ns]
	if !ok {
		n = len(p.spaces)
		p.spaces[ns] = n
	}
	return n
}

// preview returns the text of tokens, cut at the first rune that begins after maxTextBytes.
func (p *pruner) preview(tokens []kv.Token) string {
	text := p.text(tokens)
	for at := range text {
		if at > maxTextBytes {
			return text[:at]
		}
	}
	return text
}
