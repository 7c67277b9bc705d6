package radixcache

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// drawKey draws a key of whole pages, which often shares a part with earlier ones.
func drawKey(rng *rand.Rand, pageTokens int) Key {
	key := Key{Namespace: kv.Namespace{Salt: []string{"", "a", "b"}[rng.IntN(3)]}}
	if key.Namespace.Salt != "" {
		key.PublicTokens = rng.IntN(8)
	}
	for range rng.IntN(25) / pageTokens * pageTokens {
		key.Tokens = append(key.Tokens, kv.Token(rng.IntN(2)))
	}
	return key
}

// TestPlaces: a place has the tokens with which it was made, through splits, joins, evictions and
// flushes, or is gone; while it is pinned it is not gone, unless the tree was flushed.
func TestPlaces(t *testing.T) {
	type kept struct {
		place  Place
		tokens []kv.Token
		pin    NodeID
		epoch  uint64
	}
	read, gone := 0, 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 3))
		size := []int{1, 4}[seed%2]
		c := newCache(t, Config{PageTokens: size})
		var all []kept
		page := kv.PageID(1)
		for range 300 {
			switch rng.IntN(8) {
			case 0, 1, 2, 3: // a path that often shares a part with earlier ones
				key := drawKey(rng, size)
				whole := len(key.Tokens)
				if whole == 0 {
					continue
				}
				m := c.Match(key)
				pages := c.AppendPages(m, nil)
				for len(pages) < whole/size {
					pages = append(pages, page)
					page++
				}
				id, _ := c.Extend(c.Pin(m), key, pages, nil)
				all = append(all, kept{PlaceOf(id, whole, c), key.Tokens, id, c.Epoch()})
			case 4, 5: // a request ends
				if len(all) > 0 {
					k := &all[rng.IntN(len(all))]
					if k.pin != Root {
						c.Unpin(k.pin)
					}
					k.pin = Root
				}
			case 6:
				c.Evict(min(1+rng.IntN(5), c.Stats().EvictablePages), nil)
			case 7:
				if rng.IntN(20) == 0 {
					c.Flush()
				}
			}
			for _, k := range all {
				lo := rng.IntN(len(k.tokens) + 1)
				hi := lo + rng.IntN(len(k.tokens)+1-lo)
				got, ok := k.place.AppendText(c, lo, hi, []kv.Token{9})
				switch {
				case !ok && k.pin != Root && k.epoch == c.Epoch():
					t.Fatalf("seed %d: a pinned place of %d tokens is gone", seed, len(k.tokens))
				case ok && k.epoch != c.Epoch():
					t.Fatalf("seed %d: a place of a flushed tree can be read", seed)
				case ok && (got[0] != 9 || !slices.Equal(got[1:], k.tokens[lo:hi])):
					t.Fatalf("seed %d: tokens [%d,%d) are %d, want %d", seed, lo, hi, got[1:], k.tokens[lo:hi])
				case ok:
					read++
				default:
					gone++
				}
			}
		}
	}
	if read < 10_000 || gone < 10_000 {
		t.Errorf("%d places read, %d gone", read, gone)
	}
}

// TestDistrustedPlaces: a distrusted place can't be read until it is trusted again, and reading allocates
// nothing.
func TestDistrustedPlaces(t *testing.T) {
	c := newCache(t, Config{PageTokens: 2})
	key := Key{Tokens: toks(1, 2, 3, 4, 5, 6)}
	id, _ := c.Extend(Root, key, []kv.PageID{1, 2, 3}, nil)
	p := PlaceOf(id, 4, c)
	dst := make([]kv.Token, 0, 8)
	if n := testing.AllocsPerRun(100, func() {
		if _, ok := p.AppendText(c, 1, 4, dst); !ok {
			t.Error("the place is gone")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	c.Distrust(key, 0)
	if _, ok := p.AppendText(c, 1, 4, dst); ok {
		t.Error("a distrusted place can be read")
	}
}
