package radixcache

import (
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

func TestExplain(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 2, TTL: time.Minute})}
	other := checker{t, x.c, kv.Namespace{Salt: "b"}}
	x.insert(toks(1, 2, 3, 4, 5, 6), 0, 1, 2)
	other.insert(toks(1, 2, 3, 4, 5, 6, 7, 8, 20, 20), 10, 11, 12, 13, 14)
	third := checker{t, x.c, kv.Namespace{Salt: "c"}}
	third.insert(toks(1, 2, 3, 4, 5, 6, 7, 8), 20, 21, 22, 23)
	explain := func(x checker, want Explanation, tokens ...kv.Token) {
		t.Helper()
		if got := x.c.Explain(x.key(tokens)); got != want {
			t.Errorf("explain %v: %+v\nwant %+v", tokens, got, want)
		}
	}
	explain(x, Explanation{Tokens: 6, Why: WhyWhole}, 1, 2, 3, 4, 5, 6, 9)
	explain(x, Explanation{Tokens: 2, PartialTokens: 1, Why: WhyUnaligned}, 1, 2, 3, 9)
	explain(x, Explanation{Tokens: 2, Why: WhyNever}, 1, 2, 9, 9)
	explain(x, Explanation{Why: WhyNever}, 8, 8)
	explain(x, Explanation{Tokens: 6, Why: WhyNever}, 1, 2, 3, 4, 5, 6, 7, 8)
	explain(x, Explanation{Tokens: 6, Why: WhyNever}, 1, 2, 3, 4, 5, 6, 7, 8, 20, 20)

	x.c.Expire(0, nil)
	x.c.clock += 5
	x.evict(1, 2) // of the oldest leaf, which ended at clock 1
	explain(x, Explanation{Tokens: 4, Why: WhyEvicted, Reason: ByCapacity, Unused: 7}, 1, 2, 3, 4, 5, 6)
	x.c.Unpin(x.c.Pin(x.match(toks(1, 2), 0)))
	explain(x, Explanation{Tokens: 4, Why: WhyEvicted, Reason: ByCapacity, Unused: 7, Ago: 1}, 1, 2, 3, 4, 5, 6)
	explain(x, Explanation{Tokens: 4, PartialTokens: 0, Why: WhyNever}, 1, 2, 3, 4, 9, 9)
	x.c.Expire(2*time.Minute, nil)
	explain(third, Explanation{Why: WhyEvicted, Reason: ByAge, Unused: 6}, 1, 2, 3, 4)
	explain(checker{t, x.c, kv.Namespace{Salt: "d"}}, Explanation{Why: WhyNever}, 1, 2)
	x.c.Flush()
	explain(third, Explanation{Why: WhyFlushed}, 1, 2, 3, 4)
	x.c.Evict(99, nil)
	explain(third, Explanation{Why: WhyFlushed}, 1, 2, 3, 4)
	x.insert(toks(1, 2, 3, 4), 30, 31)
	explain(x, Explanation{Tokens: 4, Why: WhyWhole}, 1, 2, 3, 4)
	explain(x, Explanation{Tokens: 4, Why: WhyFlushed}, 1, 2, 3, 4, 5, 6)
}

// Explain does not show a tenant what another tenant had.
func TestExplainKeepsNamespacesApart(t *testing.T) {
	c := newCache(t, Config{PageTokens: 1})
	c.Insert(Key{Namespace: kv.Namespace{Salt: "a"}, Tokens: toks(1)}, []kv.PageID{0}, nil)
	c.Insert(tenantKey("a", 1, 5, 6), []kv.PageID{1, 2}, nil)
	c.Insert(tenantKey("c", 1, 5, 7), []kv.PageID{1, 3}, nil)
	c.Evict(2, nil)
	for _, tc := range []struct {
		key  Key
		want Why
	}{
		{Key{Namespace: kv.Namespace{Salt: "a"}, Tokens: toks(1)}, WhyEvicted},
		{Key{Namespace: kv.Namespace{Salt: "b"}, Tokens: toks(1)}, WhyNever},
		{tenantKey("a", 1, 5, 6), WhyEvicted},
		{tenantKey("b", 1, 5, 6), WhyNever},
	} {
		if got := c.Explain(tc.key); got.Why != tc.want {
			t.Errorf("explain %+v: %v, want %v", tc.key, got.Why, tc.want)
		}
	}
	c.Evict(9, nil)
	if got := c.Explain(tenantKey("b", 1, 5, 6)); got.Why != WhyEvicted {
		t.Errorf("explain a public page: %v, want %v", got.Why, WhyEvicted)
	}
}

func TestExplainReportsQuotas(t *testing.T) {
	for _, policy := range []Policy{LRU, LFU} {
		x := checker{T: t, c: newCache(t, Config{PageTokens: 1, Policy: policy})}
		if err := x.c.SetQuota(x.ns, Quota{MaxPages: 1}); err != nil {
			t.Fatal(err)
		}
		x.insert(toks(1), 0)
		x.insert(toks(2), 1)
		if got, want := x.c.Explain(keyOf(1)), (Explanation{Why: WhyEvicted, Reason: ByQuota, Policy: policy, Unused: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
