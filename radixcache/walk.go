package radixcache

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// NodeView is one node as [Cache.Walk] shows it. Tokens belong to the tree
// and are valid until its next change.
type NodeView struct {
	ID        NodeID
	Parent    NodeID // Root at the beginning of a namespace
	Namespace kv.Namespace
	Start     int         // tokens before it
	Tokens    []kv.Token  // values from MediaToken on stand for media
	Pages     []kv.PageID // ascending token position; a copy
	Leaf      bool
	Tail      bool   // its one page is not full
	Pins      int    // handles on it, if any: 1; and children with pins
	Stamp     uint64 // clock of the last walk that ended here
	Hits      uint64 // reuses that ended here
	Priority  int32  // highest of a request that ended here
}

// Walk goes through all nodes, parents before children, siblings ascending,
// namespaces in order, private ones behind the node at which they begin. What
// was flushed is not shown. The tree must not change meanwhile.
func (c *Cache) Walk() iter.Seq[NodeView] { return c.WalkTo(0) }

// WalkTo is Walk without the nodes that have depth others, or more, before them, which it
// does not look at; 0 leaves none out.
func (c *Cache) WalkTo(depth int) iter.Seq[NodeView] {
	return func(yield func(NodeView) bool) { c.walkSpaces(c.spacesByAnchor(), Root, depth, yield) }
}

func (c *Cache) walkSpaces(spaces map[NodeID][]*space, anchor NodeID, depth int, yield func(NodeView) bool) bool {
	for _, sp := range spaces[anchor] {
		if !c.walkBelow(spaces, sp.root, depth, yield) {
			return false
		}
	}
	return true
}

func (c *Cache) walkBelow(spaces map[NodeID][]*space, parent NodeID, depth int, yield func(NodeView) bool) bool {
	for id := range c.children(parent) {
		n := &c.nodes[id]
		v := NodeView{
			ID: id, Parent: c.outer(n.parent), Namespace: n.space.ns, Start: int(n.start),
			Tokens: n.tokens.Slice(), Pages: n.pages.Slice(), Leaf: n.isLeaf(), Tail: c.isTail(n),
			Pins: int(n.pins), Stamp: n.stamp, Hits: uint64(n.hits), Priority: n.prio,
		}
		if !yield(v) {
			return false
		}
		if depth == 1 {
			continue
		}
		if !c.walkBelow(spaces, id, depth-1, yield) || n.flags&hasDoors != 0 && !c.walkSpaces(spaces, id, depth-1, yield) {
			return false
		}
	}
	return true
}

// WriteJSON writes the tree as one JSON object per line and node, in the order
// of [Cache.Walk]: no line is longer than its node, whatever the tree.
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

// WriteDOT writes the tree as a graph for Graphviz: a box per node with its
// tokens' range and beginning, its pages, and a heavy border if it is pinned.
func (c *Cache) WriteDOT(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "digraph radixcache {\n\tnode [shape=box fontname=monospace]\n\troot [shape=point]")
	for v := range c.Walk() {
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
		if v.Parent == Root || c.nodes[v.Parent].space.ns != v.Namespace {
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

// quoteDOT makes a string of DOT's, in which only quotes and backslashes are special.
func quoteDOT(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
