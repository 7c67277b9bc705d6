package radixcache

import (
	"fmt"
	"math/rand/v2"
	"runtime"
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
					c.Insert(keyOf(key[:n]...), pages[:n/page], nil)
				}
				b.ReportAllocs()
				for b.Loop() {
					if m := c.Match(keyOf(key...)); m.Tokens != tokens {
						b.Fatalf("matched %d tokens", m.Tokens)
					}
				}
			})
		}
	}
}

// BenchmarkResume continues an old match of 131,072 tokens after other sequences were
// inserted and evicted.
func BenchmarkResume(b *testing.B) {
	const tokens = 131072
	for _, changed := range []bool{false, true} {
		b.Run(fmt.Sprintf("changed=%v", changed), func(b *testing.B) {
			c := newCache(b, Config{})
			key := keyOf(countUp(1, tokens)...)
			c.Insert(key, pageRange(0, tokens/16), nil)
			m := c.Match(key)
			b.ReportAllocs()
			for b.Loop() {
				if changed {
					c.version++
				}
				if m = c.Resume(key, m); m.Tokens != tokens {
					b.Fatalf("matched %d tokens", m.Tokens)
				}
			}
		})
	}
}

// BenchmarkEvictInsert evicts one leaf and inserts a new one, among n leaves below one
// node: the steady state of a full pool.
func BenchmarkEvictInsert(b *testing.B) {
	for _, policy := range []Policy{LRU, LFU, CostAware} {
		for _, leaves := range []int{1000, 50000, 1000000} {
			b.Run(fmt.Sprintf("policy=%v/leaves=%d", policy, leaves), func(b *testing.B) {
				c := newCache(b, Config{PageTokens: 1, Policy: policy, WholeLeaves: true})
				l := newLeaves(c, leaves, 1)
				freed := make([]kv.PageID, 0, 8)
				b.ReportAllocs()
				for b.Loop() {
					freed = c.Evict(2, freed[:0])
					l.add(freed[0], freed[1])
				}
			})
		}
	}
}

// BenchmarkEvict evicts one leaf after another among many, which hang below many
// nodes; 1,000 at a time are inserted again while the timer is stopped.
func BenchmarkEvict(b *testing.B) {
	for _, leaves := range []int{1000, 50000, 1000000} {
		for _, parents := range []int{1, leaves / 100} {
			b.Run(fmt.Sprintf("leaves=%d/parents=%d", leaves, parents), func(b *testing.B) {
				c := newCache(b, Config{PageTokens: 1})
				l := newLeaves(c, leaves, parents)
				var freed []kv.PageID
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					freed = c.Evict(2, freed)
					if i%1000 == 999 || len(freed) > leaves {
						b.StopTimer()
						for ; len(freed) > 0; freed = freed[2:] {
							l.add(freed[0], freed[1])
						}
						b.StartTimer()
					}
				}
			})
		}
	}
}

// leaves inserts leaves of two tokens below a few nodes of one token.
type leaves struct {
	c       *Cache
	parents int
	next    kv.Token
}

func newLeaves(c *Cache, count, parents int) *leaves {
	l := &leaves{c: c, parents: parents}
	for i := range kv.PageID(count) {
		l.add(kv.PageID(parents)+2*i, kv.PageID(parents)+2*i+1)
	}
	return l
}

func (l *leaves) add(first, second kv.PageID) {
	l.next++
	parent := int(l.next) % l.parents
	key := toks(kv.Token(parent), l.next*2654435761%MediaToken, 7) // spread over the children
	l.c.Insert(keyOf(key...), []kv.PageID{kv.PageID(parent), first, second}, nil)
}

// BenchmarkMatchSiblings matches a page among n siblings, which differ at one
// token of the page or anywhere in it; hits and misses alternate. Either the same 64
// keys are matched again and again, or other keys each time, so that the siblings are
// out of the caches.
func BenchmarkMatchSiblings(b *testing.B) {
	const page = 16
	for _, warm := range []int{64, 100000} {
		for _, part := range []string{"one", "any"} {
			for _, siblings := range []int{100, 100000} {
				b.Run(fmt.Sprintf("keys=%d/part=%s/siblings=%d", min(warm, siblings), part, siblings), func(b *testing.B) {
					c := newCache(b, Config{PageTokens: page})
					rng := rand.New(rand.NewPCG(5, 5))
					keys := make([][page]kv.Token, siblings)
					for i := range keys {
						for j := range keys[i] {
							keys[i][j] = kv.Token(j)
						}
						at := 8
						if part == "any" {
							at = rng.IntN(page)
						}
						for ; at < page; at++ {
							keys[i][at] = kv.Token(rng.IntN(128000))
						}
						c.Insert(keyOf(keys[i][:]...), []kv.PageID{kv.PageID(i)}, nil)
					}
					i := 0
					for b.Loop() {
						key := keys[i%warm*7919%siblings]
						if i%2 == 1 {
							key[page-1]++
						}
						if m := c.Match(keyOf(key[:]...)); m.Tokens+m.Partial.Tokens < page-1 {
							b.Fatalf("matched %+v of %v", m, key)
						}
						i++
					}
				})
			}
		}
	}
}

// BenchmarkMemory reports the bytes of heap per cached token when nothing is shared.
func BenchmarkMemory(b *testing.B) {
	for _, page := range []int{1, 16} {
		b.Run(fmt.Sprintf("load=unique/page=%d", page), func(b *testing.B) {
			all := load("unique", 10000)
			for b.Loop() {
				before := heapBytes()
				c := newCache(b, Config{PageTokens: page})
				next := kv.PageID(0)
				for _, tokens := range all {
					pages := make([]kv.PageID, kv.CeilPages(len(tokens), page))
					for i := range pages {
						pages[i] = next
						next++
					}
					c.Insert(keyOf(tokens...), pages, nil)
				}
				b.ReportMetric(float64(heapBytes()-before)/float64(c.Stats().Tokens), "B/token")
			}
		})
	}
}

func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkMatchAsCold has 100,000 siblings below one node, or a hundred siblings below each of
// a thousand nodes, so that equally many nodes are not in a CPU cache. It matches each key
// once in 100,000 matches; hits and misses alternate.
func BenchmarkMatchAsCold(b *testing.B) {
	const page, leaves = 16, 100000
	for _, siblings := range []int{100, leaves} {
		b.Run(fmt.Sprintf("siblings=%d", siblings), func(b *testing.B) {
			c := newCache(b, Config{PageTokens: page})
			rng := rand.New(rand.NewPCG(5, 5))
			keys := make([][2 * page]kv.Token, leaves)
			for i := range keys {
				for j := range keys[i] {
					keys[i][j] = kv.Token(j)
				}
				keys[i][0] = kv.Token(i / siblings)
				for at := page + 8; at < 2*page; at++ {
					keys[i][at] = kv.Token(rng.IntN(128000))
				}
				c.Insert(keyOf(keys[i][:]...), []kv.PageID{kv.PageID(2 * i), kv.PageID(2*i + 1)}, nil)
			}
			rng.Shuffle(leaves, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			i := 0
			for b.Loop() {
				key := &keys[i%leaves]
				key[2*page-1] ^= 1 << 20 // away, and back the next time round
				if m := c.Match(keyOf(key[:]...)); m.Tokens+m.Partial.Tokens < 2*page-1 {
					b.Fatalf("matched %+v of %v", m, key)
				}
				if i%2 == 0 {
					key[2*page-1] ^= 1 << 20
				}
				i++
			}
		})
	}
}
