package e2e

import (
	"testing"

	"github.com/openai/openai-go/v3/option"
)

// node is a node of /v1/cache/tree.
type node struct {
	ID     int    `json:"id"`
	Parent int    `json:"parent"`
	Salted bool   `json:"salted"`
	Start  int    `json:"start"`
	Tokens int    `json:"tokens"`
	First  []int  `json:"first"`
	Text   string `json:"text"`
	Pins   int    `json:"pins"`
	Hits   int    `json:"hits"`
}

func (p *process) tree(query string) (nodes []node, truncated int) {
	p.t.Helper()
	var answer struct {
		Nodes     []node `json:"nodes"`
		Truncated int    `json:"truncated"`
	}
	if err := p.client.Get(within(p.t), "cache/tree"+query, nil, &answer); err != nil {
		p.t.Fatalf("tree: %v", detail(err))
	}
	return answer.Nodes, answer.Truncated
}

// TestTree checks that prompts with a common prefix are below one node, and each node below its parent.
func TestTree(t *testing.T) {
	p := serve(t)
	begin := words("What is light", 16)
	for _, end := range []string{"One way.", "Another way.", "A third."} {
		p.complete(text(begin+end, 4))
	}
	p.complete(text("salted", 40), option.WithJSONSet("cache_salt", "blue"))
	nodes, hidden := p.tree("?tokens=8")
	byID := map[int]node{}
	kids := map[int]int{}
	tokens := 0
	for _, n := range nodes {
		byID[n.ID] = n
		kids[n.Parent]++
		tokens += n.Tokens
		if up, ok := byID[n.Parent]; n.Parent != 0 && (!ok || up.Start+up.Tokens != n.Start) {
			t.Errorf("node %+v under %+v", n, up)
		}
		if len(n.First) != min(8, n.Tokens) {
			t.Errorf("node %d shows %d of %d tokens", n.ID, len(n.First), n.Tokens)
		}
	}
	f := p.stats(p.client)
	if hidden != 0 || len(nodes) != f.Nodes || tokens != f.TreeTokens || f.Namespaces != 2 {
		t.Errorf("%d nodes of %d tokens, %d hidden; the figures are %+v", len(nodes), tokens, hidden, f)
	}
	shared := false
	for _, n := range nodes {
		shared = shared || n.Parent == 0 && !n.Salted && kids[n.ID] >= 2 && n.Tokens > 100 && n.Hits+n.Pins >= 0
	}
	if !shared {
		t.Errorf("no node has the ends of a common beginning under it: %+v", nodes)
	}
	if some, left := p.tree("?nodes=1"); len(some) != 1 || left != len(nodes)-1 {
		t.Errorf("of one node: %d, and %d left out", len(some), left)
	}
	for _, n := range first(p.tree("?depth=1")) {
		if n.Parent != 0 {
			t.Errorf("at depth 1 %+v", n)
		}
	}
	err := p.client.Get(within(t), "cache/tree?depth=deep", nil, nil)
	refused(t, "depth", err, 400, "depth", "invalid_value")
}

func first[A, B any](a A, _ B) A { return a }

// TestFlush checks that a flush empties the cache.
func TestFlush(t *testing.T) {
	p := serve(t)
	prompt := words("What is light", 16)
	p.complete(text(prompt, 4))
	if f := p.stats(p.client); f.Nodes == 0 || f.TreeTokens == 0 {
		t.Fatalf("nothing is cached: %+v", f)
	}
	var ok struct{ Status string }
	if err := p.client.Post(within(t), "cache/flush", nil, &ok); err != nil || ok.Status != "ok" {
		t.Fatalf("flush: %+v, %v", ok, detail(err))
	}
	if nodes, hidden := p.tree(""); len(nodes) != 0 || hidden != 0 {
		t.Errorf("after a flush the tree has %+v, and %d more", nodes, hidden)
	}
	if u := p.complete(text(prompt, 4)).Usage; u.PromptTokensDetails.CachedTokens != 0 {
		t.Errorf("after a flush %d tokens are cached", u.PromptTokensDetails.CachedTokens)
	}
}

// TestPin checks that a pinned prefix stays while others are evicted, until it is unpinned.
func TestPin(t *testing.T) {
	p := serve(t, "--kv-tokens", "2048", "--pinned-tokens", "512")
	ctx := within(t)
	kept := words("This is kept", 16)
	size := len(tok.EncodePrompt(nil, kept))
	ask := func() int { return int(p.complete(text(kept, 2)).Usage.PromptTokensDetails.CachedTokens) }
	crowd := func() { // more prompts than the pool can hold
		for i := range 12 {
			p.complete(text(words("Other "+itoa(int64(i)), 30), 2))
		}
	}
	pin := map[string]any{"prompt": kept, "seconds": 3600}
	refused(t, "what is not cached", p.client.Post(ctx, "cache/pin", pin, nil), 400, "", "not_cached")
	ask()
	crowd()
	if n := ask(); n > 16 { // all prompts have the same first token
		t.Fatalf("%d tokens outlast the crowd without a pin: it is too small", n)
	}
	var pinned struct {
		Tokens int `json:"pinned_tokens"`
	}
	if err := p.client.Post(ctx, "cache/pin", pin, &pinned); err != nil || pinned.Tokens != size/16*16 {
		t.Fatalf("pinned %d of %d: %v", pinned.Tokens, size, detail(err))
	}
	if f := p.stats(p.client); f.ProtectedPages != size/16 {
		t.Errorf("%d pages are protected, want %d", f.ProtectedPages, size/16)
	}
	crowd()
	if n := ask(); n < size/16*16-1 {
		t.Errorf("%d of %d pinned tokens outlasted the crowd", n, pinned.Tokens)
	}
	if err := p.client.Delete(ctx, "cache/pin", pin, nil); err != nil {
		t.Fatalf("unpin: %v", detail(err))
	}
	crowd()
	if n := ask(); n > 16 {
		t.Errorf("%d tokens outlast the crowd without the pin", n)
	}
	refused(t, "what is not pinned", p.client.Delete(ctx, "cache/pin", pin, nil), 400, "", "not_cached")
	large := words("This is large", 50)
	p.complete(text(large, 2))
	refused(t, "over the budget", p.client.Post(ctx, "cache/pin", map[string]any{"prompt": large, "seconds": 60}, nil), 400, "", "pin_budget")
	refused(t, "without an end", p.client.Post(ctx, "cache/pin", map[string]any{"prompt": kept}, nil), 400, "seconds", "missing_required_parameter")
	p.quiet(p.client)
}
