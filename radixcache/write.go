package radixcache

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// shownTokens is how many tokens of an edge WriteTo prints.
const shownTokens = 8

// WriteTo writes the tree as text, one node per line, children indented below
// their parent, namespaces in order, private ones below the node at which they
// begin. A line tells the node, its tokens' range and beginning, its pages, and
// what it is besides: pins (on the node, and children with pins), stamp (larger
// is more recent; of nodes with children it is that of the last walk that ended
// there), tail.
func (c *Cache) WriteTo(w io.Writer) (int64, error) {
	out := countingWriter{w: w}
	c.writeSpaces(&out, c.spacesByAnchor(), Root, 0)
	return out.n, out.err
}

func (c *Cache) writeSpaces(out *countingWriter, spaces map[NodeID][]*space, anchor NodeID, depth int) {
	for _, sp := range spaces[anchor] {
		fmt.Fprintf(out, "%snamespace model=%q lora=%q salt=%q\n", strings.Repeat("  ", depth), sp.ns.Model, sp.ns.LoRA, sp.ns.Salt)
		c.writeChildren(out, spaces, sp.root, depth+1)
	}
}

// spacesByAnchor are the spaces that begin at each node, in order.
func (c *Cache) spacesByAnchor() map[NodeID][]*space {
	spaces := map[NodeID][]*space{}
	for key, sp := range c.spaces { // any order: sorted below
		spaces[key.anchor] = append(spaces[key.anchor], sp)
	}
	for _, list := range spaces {
		slices.SortFunc(list, func(a, b *space) int { return compareNamespaces(a.ns, b.ns) })
	}
	return spaces
}

func compareNamespaces(a, b kv.Namespace) int {
	return cmp.Or(strings.Compare(a.Model, b.Model), strings.Compare(a.LoRA, b.LoRA), strings.Compare(a.Salt, b.Salt))
}

func before(a, b kv.Namespace) bool { return compareNamespaces(a, b) < 0 }

func (c *Cache) writeChildren(out *countingWriter, spaces map[NodeID][]*space, id NodeID, depth int) {
	for kid := range c.children(id) {
		if out.err != nil {
			return
		}
		n := &c.nodes[kid]
		fmt.Fprintf(out, "%s#%d [%d,%d) tokens %s pages %v", strings.Repeat("  ", depth), kid, n.start, n.end(), showTokens(n.tokens.Slice()), n.pages.Slice())
		if n.pins > 0 {
			fmt.Fprintf(out, " pins %d", n.pins)
		}
		fmt.Fprintf(out, " stamp %d", n.stamp)
		if c.isTail(n) {
			fmt.Fprint(out, " tail")
		}
		fmt.Fprintln(out)
		c.writeChildren(out, spaces, kid, depth+1)
		if n.flags&hasDoors != 0 {
			c.writeSpaces(out, spaces, kid, depth+1)
		}
	}
}

func showTokens(tokens []kv.Token) string {
	if len(tokens) <= shownTokens {
		return fmt.Sprint(tokens)
	}
	s := fmt.Sprint(tokens[:shownTokens])
	return s[:len(s)-1] + " …]"
}

// countingWriter keeps the count and the first error, after which it is mute.
type countingWriter struct {
	w   io.Writer
	n   int64
	err error
}

func (c *countingWriter) Write(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.err = err
	return n, err
}
