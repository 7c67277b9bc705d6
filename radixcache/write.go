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
// their parent, namespaces by ascending LoRA and salt. A line tells the node,
// its tokens' range and beginning, its pages, and what it is besides: pins
// (handles at or below it), stamp (larger is more recent), tail.
func (c *Cache) WriteTo(w io.Writer) (int64, error) {
	out := countingWriter{w: w}
	spaces := make([]*space, 0, len(c.spaces))
	for _, sp := range c.spaces {
		spaces = append(spaces, sp)
	}
	slices.SortFunc(spaces, func(a, b *space) int {
		return cmp.Or(strings.Compare(a.ns.LoRA, b.ns.LoRA), strings.Compare(a.ns.Salt, b.ns.Salt))
	})
	for _, sp := range spaces {
		fmt.Fprintf(&out, "namespace lora=%q salt=%q\n", sp.ns.LoRA, sp.ns.Salt)
		c.writeChildren(&out, sp.root, 1)
	}
	return out.n, out.err
}

func (c *Cache) writeChildren(out *countingWriter, id NodeID, depth int) {
	for kid := range c.children(id) {
		if out.err != nil {
			return
		}
		n := &c.nodes[kid]
		fmt.Fprintf(out, "%s#%d [%d,%d) tokens %s pages %v", strings.Repeat("  ", depth), kid, n.start, n.end(), showTokens(n.tokens), n.pages)
		if n.pins > 0 {
			fmt.Fprintf(out, " pins %d", n.pins)
		}
		fmt.Fprintf(out, " stamp %d", n.stamp)
		if c.isTail(n) {
			fmt.Fprint(out, " tail")
		}
		fmt.Fprintln(out)
		c.writeChildren(out, kid, depth+1)
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
