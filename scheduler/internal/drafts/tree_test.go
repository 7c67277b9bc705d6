package drafts

import (
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// TestTexts: a sequence finds what followed in texts of its namespace, no tokens of other namespaces, none
// that a caller has not passed, and none of a text whose end was evicted.
func TestTexts(t *testing.T) {
	cache, err := radixcache.New(radixcache.Config{PageTokens: 2})
	if err != nil {
		t.Fatal(err)
	}
	texts := NewTexts(cache, 1<<10)
	a, b := kv.Namespace{Salt: "a"}, kv.Namespace{Salt: "b"}
	add := func(ns kv.Namespace, first kv.PageID, from int, tokens ...kv.Token) {
		var pages []kv.PageID
		for i := range len(tokens) / 2 {
			pages = append(pages, first+kv.PageID(i))
		}
		id, _ := cache.Extend(radixcache.Root, radixcache.Key{Namespace: ns, Tokens: tokens, PublicTokens: from}, pages, nil)
		n := texts.Add(0, ns, tokens, from, len(tokens)-2, id) // in two parts
		if again := texts.Add(n, ns, tokens, len(tokens)-2, len(tokens), id); again != n {
			t.Errorf("text %d became text %d", n, again)
		}
		cache.Unpin(id)
	}
	draft := func(ns kv.Namespace, tokens ...kv.Token) []kv.Token {
		d := newTree(texts, ns)
		d.read(tokens)
		return guesses(d, nil, 4)
	}
	check := func(what string, got []kv.Token, want ...kv.Token) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: the draft is %d, want %d", what, got, want)
		}
	}
	add(a, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8)
	add(b, 10, 6, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9)
	check("the same namespace", draft(a, 50, 1, 2, 3, 4), 5, 6, 7, 8)
	check("the end of the text", draft(a, 5, 6, 7, 8))
	check("its last but one token", draft(a, 4, 5, 6, 7), 8)
	check("too short a match", draft(a, 50, 2, 3, 4))
	check("no namespace", draft(kv.Namespace{}, 1, 2, 3, 4))
	check("public tokens", draft(b, 1, 2, 3, 4))
	check("after public tokens", draft(b, 3, 4, 5, 6), 7, 8, 9, 9)
	check("a longer match", draft(a, 2, 3, 4, 5), 6, 7, 8)
	cache.Evict(1, nil)
	check("evicted", draft(a, 1, 2, 3, 4))
	check("not evicted", draft(b, 3, 4, 5, 6), 7, 8, 9, 9)
	for i := range kv.Token(mostTexts) {
		texts.Add(0, a, []kv.Token{100, 101, 102, 103, i}, 0, 0, mustFind(t, cache, b))
	}
	check("of too many texts", draft(b, 3, 4, 5, 6))
}

// mustFind returns a node of a namespace.
func mustFind(t *testing.T, cache *radixcache.Cache, ns kv.Namespace) radixcache.NodeID {
	t.Helper()
	m := cache.Match(radixcache.Key{Namespace: ns, Tokens: []kv.Token{1, 2, 3, 4, 5, 6, 7, 8}, PublicTokens: 6})
	if m.Node == radixcache.Root {
		t.Fatal("nothing is cached")
	}
	return m.Node
}
