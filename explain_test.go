package coppice_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// TestExplain: Explain foretells the cached tokens of a request, and tells nothing of other
// namespaces. It makes no prefix more recent.
func TestExplain(t *testing.T) {
	n, ctx := open(t, coppice.Config{}), t.Context()
	explain := func(r coppice.Request) scheduler.Explanation {
		t.Helper()
		e, err := n.Explain(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	run := func(r coppice.Request) coppice.Result {
		t.Helper()
		r.MaxTokens, r.IgnoreEOS = 1, true
		got, err := n.Text(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	old := coppice.Request{Prompt: strings.Repeat("What is light, and what is colour? ", 12)}
	if e := explain(old); e.ComputedTokens != e.PromptTokens || e.Device.Why != radixcache.WhyNever {
		t.Errorf("before it is cached: %v", e)
	}
	run(old)
	for _, r := range []coppice.Request{old, {Prompt: old.Prompt[:100] + "?"}, {Prompt: old.Prompt[:30], Namespace: kv.Namespace{Salt: "a"}}, {Prompt: " And so on.", Tokens: []kv.Token{5, 6, 7}}} {
		e, got := explain(r), run(r)
		if e.PromptTokens != got.PromptTokens || e.PromptTokens-e.ComputedTokens != got.CachedTokens {
			t.Errorf("%d of %d tokens were cached: %v", got.CachedTokens, got.PromptTokens, e)
		}
	}
	if e := explain(coppice.Request{Prompt: old.Prompt, Namespace: kv.Namespace{Salt: "b"}}); e.Cached[kv.TierDevice] != 0 || e.Device.Why != radixcache.WhyNever {
		t.Errorf("in another namespace: %v", e)
	}

	recent := coppice.Request{Prompt: strings.Repeat("All things are coloured. ", 12)}
	run(recent)
	for i := range 200 { // other prompts, until the older one has to go
		if e := explain(old); e.Device.Why == radixcache.WhyEvicted {
			if e := explain(recent); e.Device.Why != radixcache.WhyWhole || i == 0 {
				t.Errorf("the older prefix was looked at, and the other was evicted after %d prompts: %v", i, e)
			}
			return
		}
		run(coppice.Request{Tokens: []kv.Token{kv.Token(i) + 3}, Prompt: strings.Repeat("Of the rainbow. ", 12)})
	}
	t.Error("the older prefix is still cached: a look at it counts as use")
}

// TestExplainErrors: prompts that can't be served, and a node without a cache.
func TestExplainErrors(t *testing.T) {
	n, ctx := open(t, coppice.Config{}), t.Context()
	for _, tc := range []struct {
		req  coppice.Request
		want error
	}{
		{coppice.Request{}, coppice.ErrEmptyPrompt},
		{coppice.Request{Tokens: []kv.Token{1 << 30}}, coppice.ErrInvalid},
		{coppice.Request{Prompt: strings.Repeat("1.", 10000)}, coppice.ErrPromptTooLong},
	} {
		if _, err := n.Explain(ctx, tc.req); !errors.Is(err, tc.want) || !strings.HasPrefix(err.Error(), "coppice: ") {
			t.Errorf("%v, want %v", err, tc.want)
		}
	}
	n = open(t, coppice.Config{Scheduler: scheduler.Config{DisableCache: true}})
	if _, err := n.Explain(ctx, coppice.Request{Prompt: "x"}); !errors.Is(err, coppice.ErrNoCache) {
		t.Error(err)
	}
}
