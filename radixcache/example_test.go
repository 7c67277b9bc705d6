package radixcache_test

import (
	"fmt"
	"os"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// A second request reuses two pages of the first, and could copy one token of
// the third.
func Example() {
	cache, err := radixcache.New(radixcache.Config{PageTokens: 2})
	if err != nil {
		panic(err)
	}
	var public kv.Namespace
	cache.Insert(public, []kv.Token{1, 2, 3, 4, 5, 6}, []kv.PageID{10, 11, 12}, nil)

	prompt := []kv.Token{1, 2, 3, 4, 5, 9}
	m := cache.Match(public, prompt, nil)
	handle := cache.Pin(m)
	fmt.Println("cached:", m.Tokens, "tokens in pages", m.Pages, "and", m.Partial.Tokens, "of page", m.Partial.Page)

	pages := append(m.Pages, 13) // computed into a fresh page
	cache.Insert(public, prompt, pages, nil)
	cache.Unpin(handle)
	cache.WriteTo(os.Stdout)
	fmt.Println("evicted:", cache.Evict(1, nil))
	// Output:
	// cached: 4 tokens in pages [10 11] and 1 of page 12
	// namespace lora="" salt=""
	//   #3 [0,4) tokens [1 2 3 4] pages [10 11] stamp 3
	//     #2 [4,6) tokens [5 6] pages [12] stamp 1
	//     #4 [4,6) tokens [5 9] pages [13] stamp 3
	// evicted: [12]
}
