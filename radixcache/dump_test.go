package radixcache

import (
	"fmt"
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// dump returns the tree as text, one node per line in the order of Walk, children indented below
// their parent. A namespace has a line above its nodes; a private space is below the node at which
// it begins. The line of a node has its id, its range of tokens, its tokens, its pages, then its
// pins if it has any, its stamp, and "tail" for a tail leaf.
func dump(c *Cache) string {
	var out strings.Builder
	depths := map[NodeID]int{Root: -1}      // of nodes
	latest := map[NodeID]kv.Namespace{}     // by node: namespace whose line was written last below it
	namespaces := map[NodeID]kv.Namespace{} // of nodes
	for v := range c.Walk() {
		depth := depths[v.Parent] + 1
		if v.Parent == Root || namespaces[v.Parent] != v.Namespace {
			if ns, known := latest[v.Parent]; !known || ns != v.Namespace {
				latest[v.Parent] = v.Namespace
				fmt.Fprintf(&out, "%snamespace model=%q lora=%q salt=%q\n", strings.Repeat("  ", depth), v.Namespace.Model, v.Namespace.LoRA, v.Namespace.Salt)
			}
			depth++
		}
		depths[v.ID], namespaces[v.ID] = depth, v.Namespace
		fmt.Fprintf(&out, "%s#%d [%d,%d) tokens %v pages %v", strings.Repeat("  ", depth), v.ID, v.Start, v.Start+len(v.Tokens), v.Tokens, v.Pages)
		if v.Pins > 0 {
			fmt.Fprintf(&out, " pins %d", v.Pins)
		}
		fmt.Fprintf(&out, " stamp %d", v.Stamp)
		if v.Tail {
			out.WriteString(" tail")
		}
		out.WriteByte('\n')
	}
	return out.String()
}
