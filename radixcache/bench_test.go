package radixcache

import (
	"fmt"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// BenchmarkMatch finds 131,072 tokens along a chain of nodes.
func BenchmarkMatch(b *testing.B) {
	const tokens = 131072
	for _, nodes := range []int{1, 256} {
		for _, page := range []int{1, 16} {
			b.Run(fmt.Sprintf("page=%d/nodes=%d", page, nodes), func(b *testing.B) {
				c := newCache(b, Config{PageTokens: page})
				key := make([]kv.Token, tokens)
				pages := make([]kv.PageID, tokens/page)
				for i := range key {
					key[i], pages[i/page] = kv.Token(i), kv.PageID(i/page)
				}
				for n := tokens / nodes; n <= tokens; n += tokens / nodes {
					c.Insert(kv.Namespace{}, key[:n], pages[:n/page], nil)
				}
				dst := make([]kv.PageID, 0, tokens/page)
				b.ReportAllocs()
				for b.Loop() {
					if m := c.Match(kv.Namespace{}, key, dst); m.Tokens != tokens {
						b.Fatalf("matched %d tokens", m.Tokens)
					}
				}
			})
		}
	}
}

// BenchmarkEvictInsert evicts one leaf and brings a new one, among so many
// below one node: the steady state of a full pool.
func BenchmarkEvictInsert(b *testing.B) {
	for _, leaves := range []int{1000, 50000} {
		b.Run(fmt.Sprintf("leaves=%d", leaves), func(b *testing.B) {
			c := newCache(b, Config{PageTokens: 1})
			key := toks(1, 0, 7)
			freed := make([]kv.PageID, 0, 8)
			pages := make([]kv.PageID, 3)
			next := kv.Token(0)
			add := func(first, second kv.PageID) {
				next++
				key[1] = next * 2654435761 // spread over the children
				pages[0], pages[1], pages[2] = 0, first, second
				_, freed = c.Insert(kv.Namespace{}, key, pages, freed[:0])
			}
			for i := range kv.PageID(leaves) {
				add(2*i+1, 2*i+2)
			}
			b.ReportAllocs()
			for b.Loop() {
				freed = c.Evict(2, freed[:0])
				add(freed[0], freed[1])
			}
		})
	}
}
