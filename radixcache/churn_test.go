package radixcache

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

// churnRequests is the number of requests of TestChurn: go test ./radixcache -run Churn -v -args -churn=1000000
var churnRequests = flag.Int("churn", 20000, "requests of TestChurn")

// churner replays conversations under shared beginnings without end, in a cache with room
// for a part of the conversations, and with some requests running at a time.
type churner struct {
	rng    *rand.Rand
	c      *Cache
	free   []kv.PageID
	starts [][]kv.Token
	open   [][]kv.Token
	active []NodeID
}

func newChurner(t testing.TB, pages int) *churner {
	x := &churner{rng: rand.New(rand.NewPCG(1, 9)), c: newCache(t, Config{PageTokens: 16})}
	for i := range pages {
		x.free = append(x.free, kv.PageID(pages-1-i))
	}
	for range 16 {
		x.starts = append(x.starts, x.more(nil, 200, 600))
	}
	x.open = make([][]kv.Token, 64)
	return x
}

func (x *churner) more(from []kv.Token, lo, hi int) []kv.Token {
	out := slices.Clone(from)
	for range lo + x.rng.IntN(hi-lo) {
		out = append(out, kv.Token(x.rng.IntN(50000)))
	}
	return out
}

func (x *churner) step(t testing.TB) {
	i := x.rng.IntN(len(x.open))
	if x.open[i] == nil {
		x.open[i] = x.starts[x.rng.IntN(1+x.rng.IntN(len(x.starts)))]
	}
	x.open[i] = x.more(x.open[i], 32, 256)
	key := Key{Tokens: x.open[i]}
	if x.rng.IntN(5) == 0 || len(x.open[i]) > 4096 {
		x.open[i] = nil
	}
	m := x.c.Match(key)
	pages := x.c.AppendPages(m, nil)
	handle := x.c.Pin(m)
	lack := kv.CeilPages(len(key.Tokens), 16) - len(pages)
	if short := lack - len(x.free); short > 0 {
		x.free = x.c.Evict(short, x.free)
	}
	if lack > len(x.free) {
		t.Fatalf("%d pages free, %d wanted", len(x.free), lack)
	}
	pages = append(pages, x.free[len(x.free)-lack:]...)
	x.free = x.free[:len(x.free)-lack]
	handle, x.free = x.c.Extend(handle, key, pages, x.free)
	x.active = append(x.active, handle)
	for len(x.active) > 8 {
		j := x.rng.IntN(len(x.active))
		x.c.Unpin(x.active[j])
		x.active = slices.Delete(x.active, j, j+1)
	}
}

// leafKeys returns the whole sequences that a tree holds, and their pages.
func leafKeys(c *Cache) (keys []Key, pages [][]kv.PageID) {
	var path []kv.Token
	var ids []kv.PageID
	for v := range c.Walk() {
		path = append(path[:v.Start], v.Tokens...)
		ids = append(ids[:v.Start/c.cfg.PageTokens], v.Pages...)
		if v.Leaf {
			keys = append(keys, Key{Tokens: slices.Clone(path)})
			pages = append(pages, slices.Clone(ids))
		}
	}
	return keys, pages
}

// TestChurn compares a tree after a long history with a fresh tree into which the same
// sequences are inserted. Match times are printed, not asserted.
func TestChurn(t *testing.T) {
	if invariants.Enabled {
		t.Skip("a full walk after each of a hundred thousand mutations takes an hour")
	}
	x := newChurner(t, 60000)
	for range *churnRequests {
		x.step(t)
	}
	for _, h := range x.active {
		x.c.Unpin(h)
	}
	if err := x.c.Check(); err != nil {
		t.Fatal(err)
	}
	keys, pages := leafKeys(x.c)
	before := heapBytes()
	fresh := newCache(t, Config{PageTokens: 16})
	for i, key := range keys {
		fresh.Insert(key, pages[i], nil)
	}
	freshBytes := heapBytes() - before - freeBytes(fresh)
	old, anew := x.c.Stats(), fresh.Stats()
	if old.Tokens != anew.Tokens || old.Leaves != anew.Leaves {
		t.Fatalf("the fresh tree is another:\n%v\n%v", anew, old)
	}
	if 10*old.Nodes > 11*anew.Nodes {
		t.Errorf("%d nodes, a fresh tree has %d", old.Nodes, anew.Nodes)
	}
	// Reading a tree in the order in which it was built would be too easy.
	x.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	times := [2]time.Duration{1 << 60, 1 << 60}
	for range 20 {
		for i, c := range []*Cache{x.c, fresh} {
			start := time.Now()
			for _, key := range keys {
				if m := c.Match(key); m.Tokens != len(key.Tokens)/16*16 {
					t.Fatalf("matched %d of %d tokens", m.Tokens, len(key.Tokens))
				}
			}
			times[i] = min(times[i], time.Since(start))
		}
	}
	// The old tree's size is the amount by which the heap shrinks when the tree is freed.
	// The table of removals has a fixed size; the fresh tree has none, as nothing was removed.
	held, used := x.c.memory.Bytes()
	if 4*held > 5*used {
		t.Errorf("%d bytes of token memory hold %d", held, used)
	}
	free := freeBytes(x.c)
	with := heapBytes()
	x.c.ghosts.table = nil
	table := with - heapBytes()
	x.c = nil
	oldBytes := with - table - heapBytes() - free
	if 10*oldBytes > 11*freshBytes {
		t.Errorf("%d bytes, a fresh tree takes %d", oldBytes, freshBytes)
	}
	n := time.Duration(len(keys))
	t.Logf("%d requests: %d nodes, fresh %d; %d bytes for %d tokens, fresh %d, and %d free in the arena; match of a held sequence %v, fresh %v",
		*churnRequests, old.Nodes, anew.Nodes, oldBytes, old.Tokens, freshBytes, free, times[0]/n, times[1]/n)
	runtime.KeepAlive(keys)
	runtime.KeepAlive(pages)
	runtime.KeepAlive(x)
}

// freeBytes returns the free bytes between the arrays of a cache's tokens. They do not
// count as the tree's memory, as free slots of the heap's size classes do not either.
func freeBytes(c *Cache) uint64 {
	held, used := c.memory.Bytes()
	return uint64(held - used)
}
