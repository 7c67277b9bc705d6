package radixcache

import (
	"fmt"
	"io"
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// shownTokens is how many tokens of an edge WriteTo prints.
const shownTokens = 8

// WriteTo writes the tree as text, one node per line, children indented below
// their parent, namespaces in order, private ones below the node at which they
// begin. A line has the node, its tokens' range and beginning, its pages, and then,
// where they apply: pins (on the node, and children with pins), stamp (larger
// is more recent; of nodes with children it is that of the last walk that ended
// there), tail.
func (c *Cache) WriteTo(w io.Writer) (int64, error) {
	out := countingWriter{w: w}
	depths := map[NodeID]int{Root: -1}      // of nodes
	latest := map[NodeID]kv.Namespace{}     // written below a node
	namespaces := map[NodeID]kv.Namespace{} // of nodes
	for v := range c.Walk() {
		if out.err != nil {
			break
		}
		depth := depths[v.Parent] + 1
		if v.Parent == Root || namespaces[v.Parent] != v.Namespace {
			if ns, known := latest[v.Parent]; !known || ns != v.Namespace {
				latest[v.Parent] = v.Namespace
				fmt.Fprintf(&out, "%snamespace model=%q lora=%q salt=%q\n", strings.Repeat("  ", depth), v.Namespace.Model, v.Namespace.LoRA, v.Namespace.Salt)
			}
			depth++
		}
		depths[v.ID], namespaces[v.ID] = depth, v.Namespace
		writeNode(&out, &v, depth)
	}
	return out.n, out.err
}

func writeNode(out *countingWriter, v *NodeView, depth int) {
	fmt.Fprintf(out, "%s#%d [%d,%d) tokens %s pages %v", strings.Repeat("  ", depth), v.ID, v.Start, v.Start+len(v.Tokens), showTokens(v.Tokens), v.Pages)
	if v.Pins > 0 {
		fmt.Fprintf(out, " pins %d", v.Pins)
	}
	fmt.Fprintf(out, " stamp %d", v.Stamp)
	if v.Tail {
		fmt.Fprint(out, " tail")
	}
	fmt.Fprintln(out)
}

func showTokens(tokens []kv.Token) string {
	if len(tokens) <= shownTokens {
		return fmt.Sprint(tokens)
	}
	s := fmt.Sprint(tokens[:shownTokens])
	return s[:len(s)-1] + " …]"
}

// countingWriter keeps the count and the first error, after which it writes nothing.
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
