package radixcache

import (
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// golden returns a small tree with nodes of all kinds.
func golden(t *testing.T) *Cache {
	c := newCache(t, Config{PageTokens: 4})
	other := kv.Namespace{LoRA: "sql", Salt: "tenant-a"}
	c.Insert(Key{Namespace: other, Tokens: toks(1, 2, 3, 4)}, []kv.PageID{9}, nil)
	c.Insert(keyOf(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), []kv.PageID{0, 1, 2}, nil)
	c.Pin(c.Match(keyOf(1, 2, 3, 4, 5, 6)))
	c.Insert(keyOf(1, 2, 3, 4, 20, 21), []kv.PageID{3, 4}, nil)
	c.Insert(keyOf(1, 2, 3, 4, 20, 21, 22, 23), []kv.PageID{0, 5}, nil)
	c.Insert(keyOf(30), []kv.PageID{6}, nil)
	c.Insert(keyOf(40, 41, 42, 43), []kv.PageID{7}, nil)
	c.Insert(keyOf(50, 51), []kv.PageID{8}, nil)
	c.Evict(1, nil) // the older namespace
	c.Insert(Key{Namespace: other, Tokens: toks(1, 2)}, []kv.PageID{9}, nil)
	return c
}

// The tree of golden, as Walk shows it.
func TestTree(t *testing.T) {
	const want = `namespace model="" lora="" salt=""
  #5 [0,4) tokens [1 2 3 4] pages [0] pins 1 stamp 4
    #4 [4,12) tokens [5 6 7 8 9 10 11 12] pages [1 2] stamp 2
    #7 [4,8) tokens [20 21 22 23] pages [5] stamp 5
  #6 [0,1) tokens [30] pages [6] stamp 6 tail
  #8 [0,4) tokens [40 41 42 43] pages [7] stamp 7
  #9 [0,2) tokens [50 51] pages [8] stamp 8 tail
namespace model="" lora="sql" salt="tenant-a"
  #2 [0,2) tokens [1 2] pages [9] stamp 9 tail
`
	if got := dump(golden(t)); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestStatsString(t *testing.T) {
	const want = `tokens 25 = 21 evictable + 4 protected
pages  8 = 7 evictable + 1 protected
nodes  7 in 2 namespaces, 6 leaves, 3 of them tails
hits   3 of 9 requests, 12 of 45 tokens
so far 8 inserts (2 pages returned), 1 splits, 0 joins; pages removed by reason: 1 capacity, 1 superseded
`
	if got := golden(t).Stats().String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestEvicted(t *testing.T) {
	tokens, pages := golden(t).Stats().Evicted()
	if tokens != 4 || pages != 1 {
		t.Errorf("%d tokens in %d pages were evicted, want 4 in 1: superseded ones do not count", tokens, pages)
	}
}
