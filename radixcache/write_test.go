package radixcache

import (
	"errors"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// golden is a small tree with something of everything.
func golden(t *testing.T) *Cache {
	c := newCache(t, Config{PageTokens: 4})
	other := kv.Namespace{LoRA: "sql", Salt: "tenant-a"}
	c.Insert(other, toks(1, 2, 3, 4), []kv.PageID{9}, nil)
	c.Insert(kv.Namespace{}, toks(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), []kv.PageID{0, 1, 2}, nil)
	c.Pin(c.Match(kv.Namespace{}, toks(1, 2, 3, 4, 5, 6), nil))
	c.Insert(kv.Namespace{}, toks(1, 2, 3, 4, 20, 21), []kv.PageID{3, 4}, nil)
	c.Insert(kv.Namespace{}, toks(1, 2, 3, 4, 20, 21, 22, 23), []kv.PageID{0, 5}, nil)
	c.Insert(kv.Namespace{}, toks(30), []kv.PageID{6}, nil)
	c.Insert(kv.Namespace{}, toks(40, 41, 42, 43), []kv.PageID{7}, nil)
	c.Insert(kv.Namespace{}, toks(50, 51), []kv.PageID{8}, nil)
	c.Evict(1, nil) // the older namespace
	c.Insert(other, toks(1, 2), []kv.PageID{9}, nil)
	return c
}

func TestWriteTo(t *testing.T) {
	const want = `namespace lora="" salt=""
  #5 [0,4) tokens [1 2 3 4] pages [0] pins 1 stamp 5
    #4 [4,12) tokens [5 6 7 8 9 10 11 12] pages [1 2] stamp 2
    #7 [4,8) tokens [20 21 22 23] pages [5] stamp 5
  #6 [0,1) tokens [30] pages [6] stamp 6 tail
  #8 [0,4) tokens [40 41 42 43] pages [7] stamp 7
  #9 [0,2) tokens [50 51] pages [8] stamp 8 tail
namespace lora="sql" salt="tenant-a"
  #2 [0,2) tokens [1 2] pages [9] stamp 9 tail
`
	var b strings.Builder
	n, err := golden(t).WriteTo(&b)
	if b.String() != want || n != int64(len(want)) || err != nil {
		t.Errorf("%d bytes, %v:\n%s\nwant:\n%s", n, err, b.String(), want)
	}
}

func TestWriteToShortensEdges(t *testing.T) {
	c := newCache(t, Config{})
	c.Insert(kv.Namespace{}, make([]kv.Token, 9), []kv.PageID{0}, nil)
	var b strings.Builder
	c.WriteTo(&b)
	if want := "tokens [0 0 0 0 0 0 0 0 …] pages [0]"; !strings.Contains(b.String(), want) {
		t.Errorf("%s\nwant %q in it", b.String(), want)
	}
}

// failing takes so many bytes and then no more.
type failing struct{ room int }

var errFull = errors.New("full")

func (f *failing) Write(p []byte) (int, error) {
	n := min(f.room, len(p))
	f.room -= n
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

func TestWriteToStopsAtAnError(t *testing.T) {
	n, err := golden(t).WriteTo(&failing{room: 100})
	if n != 100 || !errors.Is(err, errFull) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestStatsString(t *testing.T) {
	const want = `tokens 25 = 21 evictable + 4 protected
pages  8 = 7 evictable + 1 protected
nodes  7 in 2 namespaces, 6 leaves, 3 of them tails
so far 8 inserts (2 pages returned, 1 tails superseded), 1 splits, evicted 1 nodes, 1 pages, 4 tokens
`
	if got := golden(t).Stats().String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
