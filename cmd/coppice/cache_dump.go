package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/server"
)

// cacheDumpCmd is coppice cache dump.
type cacheDumpCmd struct {
	askFlags `set:"key=of the server, if it needs one. Administrators see all nodes and tokens, others their own nodes without tokens."`

	Format string `enum:"text,dot,json" default:"text" help:"text: a line for each node. dot: a graph for Graphviz. json: a JSON object for each node. Default: text."`
	Depth  int    `default:"0" min:"0" help:"Print this many levels of nodes. 0: all."`
	Nodes  int    `default:"0" min:"0" help:"Print at most this many nodes. 0: as many as the server gives, 10,000 by default."`
	Tokens int    `default:"-1" min:"-1" max:"4096" help:"Print the first tokens of each node, at most this many. -1: 16 for administrators."`
}

// Run is called by kong.
func (c *cacheDumpCmd) Run(ctx context.Context) error {
	from, err := c.client()
	if err != nil {
		return err
	}
	query := url.Values{}
	for name, n := range map[string]int{"depth": c.Depth, "nodes": c.Nodes, "tokens": c.Tokens} {
		if n > 0 || name == "tokens" && n == 0 {
			query.Set(name, strconv.Itoa(n))
		}
	}
	answer, err := from.send(ctx, http.MethodGet, "/v1/cache/tree?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	defer answer.Close()
	out := bufio.NewWriter(terminal.Out())
	hidden, err := c.write(out, answer)
	if err := errors.Join(err, out.Flush()); err != nil {
		return err
	}
	if hidden > 0 {
		fmt.Fprintf(terminal.Err(), "coppice: %d more nodes are left out\n", hidden)
	}
	return nil
}

// write reads a tree and writes it node by node, so that a large tree takes little memory. It returns
// the number of nodes that the server has left out.
func (c *cacheDumpCmd) write(out io.Writer, tree io.Reader) (hidden int, err error) {
	var node func(*server.NodeFigures) // its writer keeps errors
	switch c.Format {
	case "dot":
		fmt.Fprintln(out, "digraph radixcache {\n\tnode [shape=box fontname=monospace]\n\troot [shape=point]")
		node = (&dotDump{out: out, labels: map[radixcache.NodeID]string{}}).node
	case "json":
		to := json.NewEncoder(out)
		node = func(n *server.NodeFigures) { to.Encode(n) }
	default:
		node = (&textDump{out: out, places: map[radixcache.NodeID]textPlace{radixcache.Root: {depth: -1}}}).node
	}
	if hidden, err = readTree(tree, node); err != nil {
		return hidden, fmt.Errorf("the answer is not a tree of coppice: %w", err)
	}
	if c.Format == "dot" {
		fmt.Fprintln(out, "}")
	}
	return hidden, nil
}

// readTree reads the answer of /v1/cache/tree and calls node for each node, parents first.
func readTree(r io.Reader, node func(*server.NodeFigures)) (hidden int, err error) {
	in := json.NewDecoder(r)
	if err := expect(in, json.Delim('{'), "nodes", json.Delim('[')); err != nil {
		return 0, err
	}
	for in.More() {
		var n server.NodeFigures
		if err := in.Decode(&n); err != nil {
			return 0, err
		}
		node(&n)
	}
	if err := expect(in, json.Delim(']'), "truncated"); err != nil {
		return 0, err
	}
	return hidden, in.Decode(&hidden)
}

// expect reads these tokens.
func expect(in *json.Decoder, tokens ...json.Token) error {
	for _, want := range tokens {
		if got, err := in.Token(); err != nil || got != want {
			return errors.Join(fmt.Errorf("%v, want %v", got, want), err)
		}
	}
	return nil
}

// textDump writes a line per node, children indented below their parent, and a line above the
// nodes of a namespace:
//
//	namespace model="" lora="" salted=false
//	  #3 [0,32) tokens [1 2 3 4 …] 2 pages hits 1 pins 1 stamp 2 "What is"
//	    #2 [32,37) tokens [5 …] 1 pages stamp 1 tail
type textDump struct {
	out    io.Writer
	places map[radixcache.NodeID]textPlace // of the nodes written
}

// textPlace is the place of a node: its indentation, and the namespaces of the node and of the last
// one below it.
type textPlace struct {
	depth      int
	own, below string
}

func (d *textDump) node(n *server.NodeFigures) {
	up := d.places[n.Parent]
	depth, ns := up.depth+1, namespaceOf(n)
	if up.own != ns {
		if up.below != ns {
			fmt.Fprintf(d.out, "%snamespace %s\n", strings.Repeat("  ", depth), ns)
			up.below = ns
			d.places[n.Parent] = up
		}
		depth++
	}
	d.places[n.ID] = textPlace{depth: depth, own: ns}
	fmt.Fprintf(d.out, "%s#%d [%d,%d)", strings.Repeat("  ", depth), n.ID, n.Start, n.Start+n.Tokens)
	if len(n.First) > 0 {
		fmt.Fprintf(d.out, " tokens %s", firstTokens(n))
	}
	fmt.Fprintf(d.out, " %d pages", n.Pages)
	if n.Hits > 0 {
		fmt.Fprintf(d.out, " hits %d", n.Hits)
	}
	if n.Pins > 0 {
		fmt.Fprintf(d.out, " pins %d", n.Pins)
	}
	fmt.Fprintf(d.out, " stamp %d", n.Stamp)
	if n.Tail {
		fmt.Fprint(d.out, " tail")
	}
	if n.Text != "" {
		fmt.Fprintf(d.out, " %q", n.Text)
	}
	fmt.Fprintln(d.out)
}

// namespaceOf returns the namespace of a node in words. The server does not give its salt.
func namespaceOf(n *server.NodeFigures) string {
	return fmt.Sprintf("model=%q lora=%q salted=%v", n.Model, n.LoRA, n.Salted)
}

// firstTokens returns the first tokens of a node, with "…" if it has more.
func firstTokens(n *server.NodeFigures) string {
	s := fmt.Sprint(n.First)
	if len(n.First) < n.Tokens {
		s = s[:len(s)-1] + " …]"
	}
	return s
}

// dotDump writes a graph for Graphviz: a box per node with its range of tokens, its first tokens and
// its pages. A heavy border means pinned, a dashed border a tail leaf.
type dotDump struct {
	out    io.Writer
	labels map[radixcache.NodeID]string // namespaces of the nodes written
}

func (d *dotDump) node(n *server.NodeFigures) {
	label := fmt.Sprintf("#%d [%d,%d)\n", n.ID, n.Start, n.Start+n.Tokens)
	if len(n.First) > 0 {
		label += firstTokens(n) + "\n"
	}
	label += fmt.Sprintf("%d pages", n.Pages)
	style := ""
	if n.Pins > 0 {
		style = " penwidth=3"
	}
	if n.Tail {
		style += " style=dashed"
	}
	from, edge, ns := "root", "", namespaceOf(n)
	if n.Parent != radixcache.Root {
		from = fmt.Sprintf("n%d", n.Parent)
	}
	if d.labels[n.ID] = ns; d.labels[n.Parent] != ns {
		edge = fmt.Sprintf(" [label=%s]", quoteDOT(ns))
	}
	fmt.Fprintf(d.out, "\tn%d [label=%s%s]\n\t%s -> n%d%s\n", n.ID, quoteDOT(label), style, from, n.ID, edge)
}

// quoteDOT quotes a string for DOT, in which only quotes, backslashes and line ends are special.
func quoteDOT(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
