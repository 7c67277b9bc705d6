package radixcache_test

import (
	"fmt"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// A second request reuses two pages of the first, and could copy one token of
// the third. It publishes its pages in two steps, as a chunked prefill does.
func Example() {
	cache, err := radixcache.New(radixcache.Config{PageTokens: 2})
	if err != nil {
		panic(err)
	}
	cache.Insert(radixcache.Key{Tokens: []kv.Token{1, 2, 3, 4, 5, 6}}, []kv.PageID{10, 11, 12}, nil)

	prompt := radixcache.Key{Tokens: []kv.Token{1, 2, 3, 4, 5, 9, 7, 8}}
	m := cache.Match(prompt)
	pages, source := cache.AppendPages(m, nil), cache.PartialPage(m)
	handle := cache.Pin(m)
	fmt.Println("cached:", m.Tokens, "tokens in pages", pages, "and", m.Partial.Tokens, "of page", source)

	pages = append(pages, 13, 14) // computed into fresh pages, one after the other
	chunk := radixcache.Key{Tokens: prompt.Tokens[:6]}
	handle, _ = cache.Extend(handle, chunk, pages[:3], nil)
	handle, _ = cache.Extend(handle, prompt, pages, nil)
	for v := range cache.Walk() {
		fmt.Println("node", v.ID, "below", v.Parent, "has tokens", v.Tokens, "in pages", v.Pages)
	}
	fmt.Println("evicted:", cache.Evict(9, nil))
	cache.Unpin(handle)
	fmt.Println("evicted:", cache.Evict(1, nil))
	// Output:
	// cached: 4 tokens in pages [10 11] and 1 of page 12
	// node 3 below 0 has tokens [1 2 3 4] in pages [10 11]
	// node 2 below 3 has tokens [5 6] in pages [12]
	// node 4 below 3 has tokens [5 9] in pages [13]
	// node 5 below 4 has tokens [7 8] in pages [14]
	// evicted: [12]
	// evicted: [14]
}

// Two tenants share a system prompt, but no token after it.
func Example_publicTokens() {
	cache, err := radixcache.New(radixcache.Config{PageTokens: 2})
	if err != nil {
		panic(err)
	}
	key := func(salt string, tokens ...kv.Token) radixcache.Key {
		return radixcache.Key{Namespace: kv.Namespace{Salt: salt}, Tokens: tokens, PublicTokens: 2}
	}
	cache.Insert(key("ann", 1, 2, 3, 4), []kv.PageID{10, 11}, nil)
	fmt.Println(cache.Match(key("ann", 1, 2, 3, 4)).Tokens, cache.Match(key("bob", 1, 2, 3, 4)).Tokens)
	// Output: 4 2
}
