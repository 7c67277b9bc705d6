package scheduler

import (
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// TestQuotaAtRest checks that a namespace keeps its quota of the cache once its requests have
// ended or been aborted, and once a pinned prefix is released: while these pin it, it may hold
// more.
func TestQuotaAtRest(t *testing.T) {
	ns := kv.Namespace{Salt: "a"}
	prompt := func(first kv.Token) []kv.Token { return append([]kv.Token{first}, make([]kv.Token, 39)...) }
	held := func(b *bed) (tokens int) {
		for v := range b.s.Cache().Walk() {
			if v.Namespace == ns {
				tokens += len(v.Tokens)
			}
		}
		return tokens
	}
	cfg := Config{Quotas: map[kv.Namespace]int{ns: 16}, PinnedTokens: 64}
	t.Run("ended", func(t *testing.T) {
		b := newBed(t, cfg, 4, 64)
		for id := range RequestID(3) {
			b.request(Request{ID: id + 1, Namespace: ns, Prompt: prompt(kv.Token(id)), MaxTokens: 3})
		}
		b.run()
		if n := held(b); n > 16 {
			t.Errorf("%d tokens stay of a quota of 16", n)
		}
	})
	t.Run("aborted", func(t *testing.T) {
		b := newBed(t, cfg, 4, 64)
		b.request(Request{ID: 1, Namespace: ns, Prompt: prompt(1), MaxTokens: 9})
		b.step()
		if n := held(b); n < 36 {
			t.Errorf("a running request holds %d tokens, want its prompt", n)
		}
		b.s.Abort(b.now, 1, nil, nil)
		b.run()
		if n := held(b); n > 16 {
			t.Errorf("%d tokens stay of a quota of 16", n)
		}
	})
	t.Run("pinned", func(t *testing.T) {
		b := newBed(t, cfg, 4, 64)
		b.request(Request{ID: 1, Namespace: ns, Prompt: prompt(1), MaxTokens: 9})
		b.step()
		if err := b.s.PinPrefix(b.now, ns, prompt(1), time.Hour); err != nil {
			t.Fatal(err)
		}
		b.run()
		if n := held(b); n != 40 {
			t.Errorf("%d tokens stay, want the 40 that are pinned", n)
		}
		if err := b.s.UnpinPrefix(ns, prompt(1)); err != nil {
			t.Fatal(err)
		}
		if n := held(b); n > 16 {
			t.Errorf("%d tokens stay of a quota of 16", n)
		}
	})
}
