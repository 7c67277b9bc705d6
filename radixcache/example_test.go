package radixcache_test

import (
	"fmt"
	"os"

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
	cache.WriteTo(os.Stdout)
	fmt.Println("evicted:", cache.Evict(9, nil))
	cache.Unpin(handle)
	fmt.Println("evicted:", cache.Evict(1, nil))
	// Output:
	// cached: 4 tokens in pages [10 11] and 1 of page 12
	// namespace model="" lora="" salt=""
	//   #3 [0,4) tokens [1 2 3 4] pages [10 11] pins 1 stamp 2
	//     #2 [4,6) tokens [5 6] pages [12] stamp 1
	//     #4 [4,6) tokens [5 9] pages [13] pins 1 stamp 3
	//       #5 [6,8) tokens [7 8] pages [14] pins 1 stamp 4
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
