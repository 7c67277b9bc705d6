package actors

import (
	"errors"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// The tree shows what the cache holds, as far as the bounds let it.
func TestTree(t *testing.T) {
	s := start(t, Config{}, cpu.Config{PageTokens: 4})
	for _, p := range []string{prompt + " one", prompt + " two", "Something else altogether, and at some length."} {
		drain(t, open(t, s, Request{Prompt: p, MaxTokens: 4, IgnoreEOS: true}))
	}
	drain(t, open(t, s, Request{Prompt: prompt, MaxTokens: 4, IgnoreEOS: true, Namespace: kv.Namespace{Salt: "a"}}))
	whole, err := s.Tree(patience(t), TreeQuery{TokensPerNode: 3})
	if err != nil {
		t.Fatal(err)
	}
	st, err := s.Stats(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	tokens, pages, salted, depth := 0, 0, 0, map[radixcache.NodeID]int{}
	for i, n := range whole.Nodes {
		tokens, pages = tokens+n.Tokens, pages+n.Pages
		if n.Namespace.Salt == "a" {
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
	for _, q := range []TreeQuery{{MaxDepth: 1}, {MaxNodes: 2}, {MaxDepth: 2, MaxNodes: 3}, {MaxDepth: 1, MaxNodes: 1}} {
		part, err := s.Tree(patience(t), q)
		if err != nil || len(part.Nodes)+part.Hidden != len(whole.Nodes) || part.Hidden == 0 || q.MaxNodes > 0 && len(part.Nodes) > q.MaxNodes {
			t.Errorf("%+v: %d nodes, %d hidden, %v", q, len(part.Nodes), part.Hidden, err)
		}
		for _, n := range part.Nodes {
			if q.MaxDepth > 0 && depth[n.ID] > q.MaxDepth || n.First != nil {
				t.Errorf("%+v shows %+v", q, n)
			}
		}
	}
	// The steps wait for no more nodes than are shown, and one.
	looked := 0
	part := TreeQuery{MaxNodes: 2}.show(func(yield func(radixcache.NodeView) bool) {
		for i := range radixcache.NodeID(1000) {
			if looked++; !yield(radixcache.NodeView{ID: i + 1, Parent: radixcache.Root}) {
				return
			}
		}
	}, 1000)
	if len(part.Nodes) != 2 || part.Hidden != 998 || looked != 3 {
		t.Errorf("%d nodes shown, %d hidden, %d looked at", len(part.Nodes), part.Hidden, looked)
	}
}

// A pinned prefix stays whatever else needs room, until its time is over or it is
// let go; a flush forgets all.
func TestPinPrefix(t *testing.T) {
	s := start(t, Config{Scheduler: scheduler.Config{PinnedTokens: 64, CurveSamples: radixcache.DefaultCurveSamples}}, cpu.Config{PageTokens: 4, KVTokens: 256})
	system := nano.Tokenizer().EncodePrompt(nil, prompt)
	system = system[:len(system)/4*4]
	ask := func(first kv.Token) int {
		t.Helper()
		_, _, e := drain(t, open(t, s, Request{Tokens: append(append([]kv.Token(nil), system...), first), MaxTokens: 2, IgnoreEOS: true}))
		if e.Err != nil {
			t.Fatal(e.Err)
		}
		return e.CachedTokens
	}
	crowd := func() {
		for i := range kv.Token(12) {
			other := make([]kv.Token, 60)
			for j := range other {
				other[j] = i + 30
			}
			drain(t, open(t, s, Request{Tokens: other, MaxTokens: 2, IgnoreEOS: true}))
		}
	}
	pin := func(d time.Duration) error { return s.PinPrefix(patience(t), kv.Namespace{}, system, d) }
	if err := pin(0); !errors.Is(err, radixcache.ErrNotCached) {
		t.Errorf("before it is cached: %v", err)
	}
	ask(1)
	crowd()
	if n := ask(2); n != 0 {
		t.Fatalf("%d tokens were cached all the same: the crowd is too small", n)
	}
	if err := pin(0); err != nil {
		t.Fatal(err)
	}
	crowd()
	if n := ask(3); n != len(system) {
		t.Errorf("pinned: %d of %d tokens are cached", n, len(system))
	}
	if err := s.UnpinPrefix(patience(t), kv.Namespace{}, system); err != nil {
		t.Error(err)
	}
	if err := s.UnpinPrefix(patience(t), kv.Namespace{}, system); !errors.Is(err, radixcache.ErrNotCached) {
		t.Errorf("let go twice: %v", err)
	}
	crowd()
	if n := ask(4); n != 0 {
		t.Errorf("let go: %d tokens are cached", n)
	}
	if err := pin(1); err != nil { // over at the next step
		t.Error(err)
	}
	crowd()
	if n := ask(5); n != 0 {
		t.Errorf("its time is over: %d tokens are cached", n)
	}
	if err := pin(-1); !errors.Is(err, scheduler.ErrInvalid) {
		t.Errorf("for less than nothing: %v", err)
	}
	if err := s.PinPrefix(patience(t), kv.Namespace{}, []kv.Token{1 << 30}, 0); !errors.Is(err, scheduler.ErrInvalid) {
		t.Errorf("a token that is none: %v", err)
	}
	rates, err := s.HitRates(patience(t), []int{0, 64, 1 << 20})
	if err != nil || len(rates) != 3 || rates[0] != 0 || rates[2] <= rates[1] {
		t.Errorf("hit rates %v, %v", rates, err)
	}
	if err := s.FlushCache(patience(t)); err != nil {
		t.Error(err)
	}
	if n := ask(6); n != 0 {
		t.Errorf("flushed: %d tokens are cached", n)
	}
	// What can't have room beside the pinned prefixes is refused.
	_, _, e := drain(t, open(t, s, Request{Tokens: system, MaxTokens: 256 - 64 - len(system) + 2}))
	if !errors.Is(e.Err, scheduler.ErrTooLarge) {
		t.Errorf("too large: %v", e.Err)
	}
	conserve(t, s)

	off := start(t, Config{Scheduler: scheduler.Config{DisableCache: true}}, cpu.Config{})
	if err := off.PinPrefix(patience(t), kv.Namespace{}, system, 0); !errors.Is(err, scheduler.ErrNoCache) {
		t.Errorf("without a cache: %v", err)
	}
	if tree, err := off.Tree(patience(t), TreeQuery{}); err != nil || len(tree.Nodes) != 0 || off.FlushCache(patience(t)) != nil {
		t.Errorf("without a cache: %+v, %v", tree, err)
	}
}

// Running shows who has a slot.
func TestRunning(t *testing.T) {
	h := hold(t, cpu.Config{})
	s := start(t, Config{Backend: h, Scheduler: scheduler.Config{MaxRunning: 2}}, cpu.Config{})
	h.let(first(1))
	stream := open(t, s, Request{Prompt: prompt, MaxTokens: 3000, IgnoreEOS: true, Tenant: "a"})
	if _, err := stream.Next(patience(t)); err != nil {
		t.Fatal(err)
	}
	runs, err := s.Running(patience(t))
	if err != nil || len(runs) != 1 || runs[0].Tenant != "a" || runs[0].OutputTokens == 0 || runs[0].ComputedTokens < runs[0].PromptTokens || runs[0].Age <= 0 {
		t.Errorf("running %+v, %v", runs, err)
	}
	stream.Abort(nil)
	h.let(all)
	drain(t, stream)
	if runs, err = s.Running(patience(t)); err != nil || len(runs) != 0 {
		t.Errorf("running %+v, %v", runs, err)
	}
}
