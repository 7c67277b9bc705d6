package coppice_test

import (
	"context"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// Tree returns the contents of the cache, within the bounds of the query.
func TestTree(t *testing.T) {
	n, ctx := open(t, coppice.Config{}), context.Background()
	const prompt = "What is light, and what is colour?"
	ns := kv.Namespace{Salt: "a"}
	for _, r := range []coppice.Request{{Prompt: prompt + " one"}, {Prompt: prompt + " two"}, {Prompt: "Something else altogether, and at some length."}, {Prompt: prompt, Namespace: ns}} {
		r.MaxTokens, r.IgnoreEOS = 4, true
		if _, err := n.Text(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := n.Tree(ctx, coppice.TreeQuery{TokensPerNode: 3})
	if err != nil {
		t.Fatal(err)
	}
	st, err := n.Stats(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tokens, pages, salted, depth := 0, 0, 0, map[radixcache.NodeID]int{}
	for i, n := range whole.Nodes {
		tokens, pages = tokens+n.Tokens, pages+n.Pages
		if n.Namespace == ns {
			salted++
		}
		if n.Parent == radixcache.Root {
			depth[n.ID] = 1
		} else if depth[n.ID] = depth[n.Parent] + 1; depth[n.ID] == 1 {
			t.Errorf("node %d comes before its parent", i)
		}
		if len(n.First) != min(3, n.Tokens) {
			t.Errorf("node %d shows %d tokens of %d", i, len(n.First), n.Tokens)
		}
	}
	if c := st.Scheduler.Cache; len(whole.Nodes) != c.Nodes || tokens != c.Tokens || pages != c.Pages || salted == 0 || whole.Hidden != 0 {
		t.Errorf("%d nodes with %d tokens in %d pages, %d of them salted, want %+v", len(whole.Nodes), tokens, pages, salted, c)
	}
	for _, q := range []coppice.TreeQuery{{MaxDepth: 1}, {MaxNodes: 2}, {MaxDepth: 2, MaxNodes: 3}, {MaxDepth: 1, MaxNodes: 1}} {
		part, err := n.Tree(ctx, q)
		if err != nil || len(part.Nodes)+part.Hidden != len(whole.Nodes) || part.Hidden == 0 || q.MaxNodes > 0 && len(part.Nodes) > q.MaxNodes {
			t.Errorf("%+v: %d nodes, %d hidden, %v", q, len(part.Nodes), part.Hidden, err)
		}
		for _, n := range part.Nodes {
			if q.MaxDepth > 0 && depth[n.ID] > q.MaxDepth || n.First != nil {
				t.Errorf("%+v shows %+v", q, n)
			}
		}
	}
}
