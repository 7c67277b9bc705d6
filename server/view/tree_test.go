package view

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/kv"
)

// TestPruneKeepsSums: cut nodes are summed up at their place; no count is lost, whatever the
// limits.
func TestPruneKeepsSums(t *testing.T) {
	for _, n := range []int{1, 2, 30, 700, 3000} {
		tree := grown(n, uint64(n))
		pinned := 0
		for _, node := range tree.Nodes {
			pinned += min(node.Pins, 1)
		}
		for _, limit := range []int{2, 3, 10, 100, 699, 700, 701, 5000} {
			for _, depth := range []int{1, 3, 64} {
				p := pruner{limit: limit, depth: depth}
				shown := p.prune(&tree)
				if len(shown) > limit {
					t.Fatalf("%d nodes, limit %d, depth %d: %d are shown", n, limit, depth, len(shown))
				}
				if n <= limit && depth == 64 && len(shown) != n {
					t.Errorf("%d nodes, limit %d: %d are shown, want all", n, limit, len(shown))
				}
				var nodes, tokens, pages, wantTokens, wantPages, kept int
				var reuses, wantReuses uint64
				seen, more, deep := map[uint32]Node{}, map[uint32]bool{}, map[uint32]int{}
				for _, v := range shown {
					if up, ok := seen[v.Parent]; v.Parent != 0 && !ok {
						t.Fatalf("node %d comes before its parent %d", v.ID, v.Parent)
					} else if ok && (v.Start != up.Start+up.Tokens || v.Reuses > up.Reuses || v.Heat > up.Heat) {
						t.Fatalf("%+v below %+v", v, up)
					}
					tokens += v.Tokens
					pages += v.Pages
					if v.More > 0 {
						if more[v.Parent] {
							t.Fatalf("two sums below %d", v.Parent)
						}
						more[v.Parent] = true
						nodes += v.More
						reuses += v.Reuses
						continue
					}
					nodes++
					reuses += v.Hits
					seen[v.ID] = v
					if deep[v.ID] = deep[v.Parent] + 1; deep[v.ID] > depth {
						t.Fatalf("node %d is at depth %d, want %d at most", v.ID, deep[v.ID], depth)
					}
					kept += min(v.Pins, 1)
				}
				for _, node := range tree.Nodes {
					wantTokens += node.Tokens
					wantPages += node.Pages
					wantReuses += node.Hits
				}
				if nodes != n || tokens != wantTokens || pages != wantPages || reuses != wantReuses {
					t.Errorf("limit %d, depth %d: %d nodes, %d tokens, %d pages, %d reuses; want %d, %d, %d, %d",
						limit, depth, nodes, tokens, pages, reuses, n, wantTokens, wantPages, wantReuses)
				}
				if depth == 64 && pinned*2 < limit && kept != pinned {
					t.Errorf("limit %d: %d of %d pinned nodes are shown", limit, kept, pinned)
				}
			}
		}
	}
}

func TestPreviewsFollowTheirNodes(t *testing.T) {
	p := pruner{limit: 10, depth: 10, text: func(tokens []kv.Token) string { return fmt.Sprint(tokens) }}
	tree := coppice.Tree{Nodes: []coppice.TreeNode{{ID: 5, Tokens: 2, First: []kv.Token{1, 2}}, {ID: 3, Tokens: 40, First: []kv.Token{4}}}}
	for range 3 {
		shown := p.prune(&tree)
		if shown[0].Text != "[1 2]" || !shown[0].TextTotal || shown[1].Text != "[4]" || shown[1].TextTotal {
			t.Fatalf("%+v", shown)
		}
	}
	tree.Nodes[0].First = []kv.Token{1, 9} // another node reuses the id
	if shown := p.prune(&tree); shown[0].Text != "[1 9]" {
		t.Errorf("text %q", shown[0].Text)
	}
	p.text = func([]kv.Token) string { return strings.Repeat("é", 200) }
	tree.Nodes[0].First = []kv.Token{7}
	text := p.prune(&tree)[0].Text
	if len(text) > maxTextBytes+4 || strings.Trim(text, "é") != "" {
		t.Errorf("%d bytes: %q", len(text), text)
	}
}

func TestHeatIsBetweenOldestAndNewest(t *testing.T) {
	p := pruner{limit: 10, depth: 10}
	tree := coppice.Tree{Nodes: []coppice.TreeNode{{ID: 1, Stamp: 100}, {ID: 2, Parent: 1, Stamp: 200}, {ID: 3, Stamp: 150}}}
	shown := p.prune(&tree)
	for i, want := range []float64{1, 1, 0.5} {
		if shown[i].Heat != want {
			t.Errorf("node %d: heat %v, want %v", i+1, shown[i].Heat, want)
		}
	}
}
