package coppice_test

import (
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
)

// TestSharedPool: two Nodes on one pool give the text that a Node with a pool of its own gives. A pool
// takes no more Nodes than it was made for, and no backend with another number of pages.
func TestSharedPool(t *testing.T) {
	const pages = 256
	pool, err := coppice.NewPool(pages, 2)
	if err != nil || pool.SharePages() != pages/2 {
		t.Fatalf("a pool of %d pages for two: %v", pages, err)
	}
	alone := open(t, coppice.Config{})
	nodes := []*coppice.Node{open(t, coppice.Config{Pool: pool}), open(t, coppice.Config{Pool: pool})}
	req := coppice.Request{Prompt: strings.Repeat("Light is ", 40), MaxTokens: 20, IgnoreEOS: true}
	want, err := alone.Text(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time from the cache
		for i, node := range nodes {
			if got, err := node.Text(t.Context(), req); err != nil || got.Text != want.Text {
				t.Errorf("node %d gives %q, %v, want %q", i, got.Text, err, want.Text)
			}
		}
	}
	m, err := model.Open(nano)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for tokens, says := range map[int]string{4096: "all shares of the pool are taken", 2048: "Pool has 256 pages, the backend 128"} {
		b, err := cpu.Open(m, cpu.Config{KVTokens: tokens})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if _, err := coppice.Open(coppice.Config{Backend: b, Pool: pool}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("a third Node, of %d tokens: %v", tokens, err)
		}
	}
	if _, err := coppice.NewPool(1, 2); err == nil || !strings.HasPrefix(err.Error(), "coppice: ") {
		t.Errorf("a page for two: %v", err)
	}
}
