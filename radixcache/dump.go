package radixcache

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// WriteJSON writes a line with a JSON object for each node, in the order of [Cache.Walk].
// It returns the first error of w.
func (c *Cache) WriteJSON(w io.Writer) error {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	for v := range c.Walk() {
		err := enc.Encode(struct {
			ID       NodeID      `json:"id"`
			Parent   NodeID      `json:"parent"`
			Model    string      `json:"model,omitempty"`
			LoRA     string      `json:"lora,omitempty"`
			Salt     string      `json:"salt,omitempty"`
			Start    int         `json:"start"`
			Tokens   []kv.Token  `json:"tokens"`
			Pages    []kv.PageID `json:"pages"`
			Pins     int         `json:"pins,omitempty"`
			Stamp    uint64      `json:"stamp"`
			Hits     uint64      `json:"hits,omitempty"`
			Priority int32       `json:"priority,omitempty"`
		}{v.ID, v.Parent, v.Namespace.Model, v.Namespace.LoRA, v.Namespace.Salt, v.Start, v.Tokens, v.Pages, v.Pins, v.Stamp, v.Hits, v.Priority})
		if err != nil {
			return fmt.Errorf("radixcache: writing node %d: %w", v.ID, err)
		}
	}
	return out.Flush()
}

// WriteDOT writes the tree as a graph for Graphviz: a box per node with its range of
// tokens, its first tokens and its number of pages. A heavy border means pinned, a
// dashed border a tail leaf. It returns the first error of w.
func (c *Cache) WriteDOT(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "digraph radixcache {\n\tnode [shape=box fontname=monospace]\n\troot [shape=point]")
	namespaces := map[NodeID]kv.Namespace{}
	for v := range c.Walk() {
		namespaces[v.ID] = v.Namespace
		label := fmt.Sprintf("#%d [%d,%d)\n%s\n%d pages", v.ID, v.Start, v.Start+len(v.Tokens), showTokens(v.Tokens), len(v.Pages))
		style := ""
		if v.Pins > 0 {
			style = " penwidth=3"
		}
		if v.Tail {
			style += " style=dashed"
		}
		from := "root"
		if v.Parent != Root {
			from = fmt.Sprintf("n%d", v.Parent)
		}
		edge := ""
		if v.Parent == Root || namespaces[v.Parent] != v.Namespace {
			edge = fmt.Sprintf(" [label=%s]", quoteDOT(strings.Trim(strings.Join([]string{v.Namespace.Model, v.Namespace.LoRA, v.Namespace.Salt}, "/"), "/")))
		}
		fmt.Fprintf(out, "\tn%d [label=%s%s]\n\t%s -> n%d%s\n", v.ID, quoteDOT(label), style, from, v.ID, edge)
	}
	fmt.Fprintln(out, "}")
	if err := out.Flush(); err != nil {
		return fmt.Errorf("radixcache: writing the graph: %w", err)
	}
	return nil
}

// quoteDOT quotes a string for DOT, in which only quotes, backslashes and line ends are
// special.
func quoteDOT(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
