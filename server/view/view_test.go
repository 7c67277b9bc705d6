package view

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// fake is a Source with fixed answers.
type fake struct {
	mu    sync.Mutex
	asked int // calls of Stats
	walks int
	stats coppice.Stats
	tree  coppice.Tree
	err   error
}

func (f *fake) set(change func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fake) count() (asked, walks int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked, f.walks
}

func (f *fake) Info() engine.Info {
	return engine.Info{Name: "fake", PageTokens: 16, PageBytes: 1024, NumPages: 100, MaxPositions: 4096}
}

func (f *fake) Stats(context.Context) (coppice.Stats, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.stats, f.err
}

func (f *fake) Running(context.Context) ([]scheduler.Run, error) {
	return []scheduler.Run{{Request: 7, Tenant: "acme", PromptTokens: 100, CachedTokens: 64, ComputedTokens: 101, OutputTokens: 2}}, nil
}

func (f *fake) Waiting(context.Context) ([]scheduler.Wait, error) {
	return []scheduler.Wait{{Request: 7, Cause: scheduler.Runs}, {Request: 8, Cause: scheduler.AwaitsPages, NeedPages: 9}, {Request: 9, Cause: scheduler.AwaitsSlot}}, nil
}

func (f *fake) Tree(_ context.Context, q coppice.TreeQuery) (coppice.Tree, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.walks++
	t := f.tree
	if q.MaxNodes > 0 && len(t.Nodes) > q.MaxNodes {
		t = coppice.Tree{Nodes: t.Nodes[:q.MaxNodes], Hidden: len(t.Nodes) - q.MaxNodes}
	}
	return t, f.err
}

func (f *fake) HitRates(_ context.Context, sizes []int) ([]float64, error) {
	rates := make([]float64, len(sizes))
	for i := range rates {
		rates[i] = float64(i) / float64(len(rates))
	}
	return rates, nil
}

// grown returns a tree of n nodes in a cache's order, with shuffled ids.
func grown(n int, seed uint64) coppice.Tree {
	rng := rand.New(rand.NewPCG(seed, 1))
	ids := rng.Perm(n)
	kids := make([][]int, n)
	first := []int{0}
	for i := 1; i < n; i++ {
		if rng.IntN(50) == 0 {
			first = append(first, i)
			continue
		}
		up := rng.IntN(i)
		if rng.IntN(3) > 0 {
			up = rng.IntN(min(i, 1+n/20)) // some nodes have many children
		}
		kids[up] = append(kids[up], i)
	}
	t := coppice.Tree{}
	var walk func(i int, parent radixcache.NodeID, ns kv.Namespace, start int) int
	walk = func(i int, parent radixcache.NodeID, ns kv.Namespace, start int) (pins int) {
		tokens := 1 + rng.IntN(200)
		text := make([]kv.Token, min(tokens, previewLen))
		for k := range text {
			text[k] = kv.Token(rng.IntN(1000))
		}
		at := len(t.Nodes)
		t.Nodes = append(t.Nodes, coppice.TreeNode{
			ID: radixcache.NodeID(ids[i] + 1), Parent: parent, Namespace: ns, Start: start, Tokens: tokens, First: text,
			Pages: kv.CeilPages(tokens, 16), Leaf: len(kids[i]) == 0, Tail: len(kids[i]) == 0 && tokens%16 != 0,
			Hits: uint64(rng.ExpFloat64() * 3), Stamp: rng.Uint64N(5000),
		})
		if rng.IntN(n) < 10 {
			pins = 1
		}
		for _, k := range kids[i] {
			pins += min(1, walk(k, radixcache.NodeID(ids[i]+1), ns, start+tokens))
		}
		t.Nodes[at].Pins = pins
		return pins
	}
	for k, i := range first {
		walk(i, radixcache.Root, kv.Namespace{Salt: fmt.Sprint("tenant ", k%7)}, 0)
	}
	return t
}
