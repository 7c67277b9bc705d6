package radixcache

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// TestWalkShowsEverything: nodes, tokens and pages as Stats counts them, parents first.
func TestWalkShowsEverything(t *testing.T) {
	c := grown(t, Config{PageTokens: 2})
	var nodes, leaves, tails, tokens, pages int
	seen := map[NodeID]bool{Root: true}
	for v := range c.Walk() {
		if !seen[v.Parent] || seen[v.ID] {
			t.Errorf("node %d after its parent %d: %v", v.ID, v.Parent, seen[v.Parent])
		}
		seen[v.ID] = true
		nodes++
		leaves += count(v.Leaf)
		tails += count(v.Tail)
		tokens += len(v.Tokens)
		pages += len(v.Pages)
	}
	s := c.Stats()
	if nodes != s.Nodes || leaves != s.Leaves || tails != s.Tails || tokens != s.Tokens || pages != s.Pages || tails == 0 {
		t.Errorf("walked %d nodes, %d leaves, %d tails, %d tokens, %d pages:\n%v", nodes, leaves, tails, tokens, pages, s)
	}
	for range c.Walk() {
		break // an early end does no harm
	}
}

// TestWalkTo: a walk to a depth shows the nodes above it in the order of Walk, and visits no
// other node.
func TestWalkTo(t *testing.T) {
	c := grown(t, Config{PageTokens: 2})
	order, depth, deepest := []NodeID{}, map[NodeID]int{Root: 0}, 0
	for v := range c.Walk() {
		depth[v.ID] = depth[v.Parent] + 1
		order, deepest = append(order, v.ID), max(deepest, depth[v.ID])
	}
	if deepest < 3 {
		t.Fatalf("the tree is %d deep: nothing is tested", deepest)
	}
	for most := deepest + 1; most > 0; most-- {
		var want, got []NodeID
		for _, id := range order {
			if depth[id] <= most {
				want = append(want, id)
			} else {
				c.nodes[id].space = nil // a look at it panics
			}
		}
		for v := range c.WalkTo(most) {
			got = append(got, v.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("to depth %d: %v, want %v", most, got, want)
		}
	}
}

func TestWriteJSON(t *testing.T) {
	c := grown(t, Config{PageTokens: 2})
	var b bytes.Buffer
	if err := c.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	tokens := 0
	dec := json.NewDecoder(&b)
	for {
		var n struct {
			ID     NodeID
			Tokens []kv.Token
			Pages  []kv.PageID
		}
		if err := dec.Decode(&n); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if n.ID == Root || len(n.Pages) == 0 {
			t.Errorf("node %+v", n)
		}
		tokens += len(n.Tokens)
	}
	if tokens != c.Stats().Tokens {
		t.Errorf("%d tokens, want %d", tokens, c.Stats().Tokens)
	}
}

func TestWriteDOT(t *testing.T) {
	c := newCache(t, Config{PageTokens: 2})
	ns := kv.Namespace{LoRA: `say "hi"\`, Salt: "s"}
	id, _ := c.Insert(Key{Namespace: ns, Tokens: toks(1, 2, 3), PublicTokens: 2}, []kv.PageID{0, 1}, nil)
	c.PinNode(id)
	var b strings.Builder
	if err := c.WriteDOT(&b); err != nil {
		t.Fatal(err)
	}
	want := `digraph radixcache {
	node [shape=box fontname=monospace]
	root [shape=point]
	n2 [label="#2 [0,2)\n[1 2]\n1 pages" penwidth=3]
	root -> n2 [label="say \"hi\"\\"]
	n4 [label="#4 [2,3)\n[3]\n1 pages" style=dashed]
	n2 -> n4 [label="say \"hi\"\\/s"]
}
`
	if b.String() != want {
		t.Errorf("wrote\n%s, want\n%s", b.String(), want)
	}
}

type brokenWriter struct{ left int }

var errBroken = errors.New("no room")

func (w *brokenWriter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		return 0, errBroken
	}
	w.left -= len(p)
	return len(p), nil
}

func TestWritersReportErrors(t *testing.T) {
	c := grown(t, Config{PageTokens: 2})
	for name, write := range map[string]func(io.Writer) error{"json": c.WriteJSON, "dot": c.WriteDOT, "snapshot": c.Snapshot} {
		for _, room := range []int{0, 10, 100} {
			if err := write(&brokenWriter{room}); !errors.Is(err, errBroken) {
				t.Errorf("%s with room for %d bytes: %v", name, room, err)
			}
		}
	}
}
