package radixcache

import (
	"fmt"
	"io"
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// shownTokens is the number of tokens of an edge that WriteTo prints.
const shownTokens = 8

// WriteTo writes the tree as text, one node per line in the order of Walk, children
// indented below their parent. A namespace has a line above its nodes; a private space
// is below the node at which it begins. The line of a node has its id, its range of
// tokens, its first tokens, its pages, then its pins if it has any (1 for handles on the
// node, and 1 for each child with pins), its stamp (a larger stamp is a later last use;
// uses that ended below the node do not count), and "tail" for a tail leaf. WriteTo
// returns the number of bytes written and the first error of w. For example, below a
// namespace's line:
//
//	#3 [0,4) tokens [1 2 3 4] pages [10 11] pins 1 stamp 2
//	  #2 [4,5) tokens [5] pages [12] stamp 1 tail
func (c *Cache) WriteTo(w io.Writer) (int64, error) {
	out := countingWriter{w: w}
	depths := map[NodeID]int{Root: -1}      // of nodes
	latest := map[NodeID]kv.Namespace{}     // by node: namespace whose line was written last below it
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

// writeNode writes the line of one node, indented by two spaces per level.
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

// showTokens formats up to shownTokens tokens, with "…" if there are more.
func showTokens(tokens []kv.Token) string {
	if len(tokens) <= shownTokens {
		return fmt.Sprint(tokens)
	}
	s := fmt.Sprint(tokens[:shownTokens])
	return s[:len(s)-1] + " …]"
}

// countingWriter writes to w, counts the bytes written and keeps the first error. After
// an error it writes nothing more and returns the error again.
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
