package radixcache

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// imageKey returns n tokens with an image at [10,30).
func imageKey(n int, hash uint64) Key {
	return Key{Tokens: countUp(1000, n), Media: []kv.Media{{At: 10, Tokens: 20, Hash: hash}}}
}

// TestChunkEndsInsideAnImage: a key that ends inside its image is cut before the image,
// even if a handle or a match ends after that.
func TestChunkEndsInsideAnImage(t *testing.T) {
	c := newCache(t, Config{})
	full := imageKey(64, 99)
	c.Insert(full, pageRange(0, 4), nil)
	part := full
	part.Tokens = full.Tokens[:31]
	m := c.Match(part)
	if m.Tokens != 16 {
		t.Fatalf("matched %d tokens", m.Tokens)
	}
	short := full
	short.Tokens = full.Tokens[:20]
	if got := c.Resume(short, m); got.Tokens != 0 || got.Partial.Tokens != 10 {
		t.Errorf("resumed with half an image: %+v", got)
	}
	h := c.Pin(m)
	pages := []kv.PageID{0, 100}
	if id, freed := c.Extend(h, short, pages, nil); id != h || len(freed) > 0 || pages[1] != 100 {
		t.Errorf("extended node %d by half an image: node %d, freed %v, pages %v", h, id, freed, pages)
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
}

// TestInvalidMediaSpans: spans past the end of the key, with an overflow, or overlapping.
func TestInvalidMediaSpans(t *testing.T) {
	c := newCache(t, Config{PageTokens: 1})
	for i, spans := range [][]kv.Media{
		{{At: 10, Tokens: math.MaxInt, Hash: 1}},
		{{At: 10, Tokens: 8, Hash: 2}, {At: 14, Tokens: 4, Hash: 3}},
		{{At: 10, Tokens: 0, Hash: 4}},
		{{At: 10, Tokens: 60, Hash: 5}},
	} {
		key := Key{Tokens: countUp(1, 64), Media: spans}
		id, freed := c.Insert(key, pageRange(kv.PageID(100*i), 64), nil)
		want := 10
		if i == 1 {
			want = 18 // the first span is good, but the second begins inside it
		}
		if got := c.Match(key).Tokens; got > want || c.nodes[id].end() > want {
			t.Errorf("%+v: %d tokens matched, %d inserted, freed %v", spans, got, c.nodes[id].end(), freed)
		}
		if err := c.Check(); err != nil {
			t.Errorf("%+v: %v", spans, err)
		}
	}
}

// TestExtendOfAnotherNamespace: Extend panics for a handle of another namespace than the key's.
func TestExtendOfAnotherNamespace(t *testing.T) {
	for _, tc := range []struct {
		name     string
		pin, ext Key
	}{
		{"salt", Key{Namespace: kv.Namespace{Salt: "a"}}, Key{Namespace: kv.Namespace{Salt: "x"}}},
		{"fewer public tokens", Key{Namespace: kv.Namespace{Salt: "a"}, PublicTokens: 32}, Key{Namespace: kv.Namespace{Salt: "a"}, PublicTokens: 16}},
		{"a token that stands for media", Key{}, Key{Tokens: []kv.Token{MediaToken}}},
	} {
		c := newCache(t, Config{})
		tc.pin.Tokens, tc.ext.Tokens = countUp(1, 32), append(countUp(1, 64-len(tc.ext.Tokens)), tc.ext.Tokens...)
		c.Insert(tc.pin, pageRange(0, 2), nil)
		h := c.Pin(c.Match(tc.pin))
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", tc.name)
				}
			}()
			c.Extend(h, tc.ext, pageRange(0, 4), nil)
		}()
		if err := c.Check(); err != nil || c.Stats().Tokens != 32 {
			t.Errorf("%s: %v, %v", tc.name, err, c.Stats())
		}
	}
}

func TestPinPrefixRefusesNegativeTimes(t *testing.T) {
	c := newCache(t, Config{PinnedTokens: 100})
	key := Key{Tokens: countUp(1, 32)}
	c.Insert(key, pageRange(0, 2), nil)
	if err := c.PinPrefix(key, -1); err == nil || errors.Is(err, ErrNotCached) || errors.Is(err, ErrPinBudget) {
		t.Errorf("until -1: %v", err)
	}
	if n, _ := c.PinnedPrefixes(); n != 0 {
		t.Errorf("%d pinned", n)
	}
}

// TestReusesDoNotWrap: the hottest leaf must not become the coldest.
func TestReusesDoNotWrap(t *testing.T) {
	c := newCache(t, Config{PageTokens: 1, Policy: LFU})
	id, _ := c.Insert(keyOf(1), []kv.PageID{1}, nil)
	c.nodes[id].hits = math.MaxUint32
	c.Unpin(c.Pin(c.Match(keyOf(1))))
	c.Insert(keyOf(2), []kv.PageID{2}, nil)
	if freed := c.Evict(1, nil); !slices.Equal(freed, []kv.PageID{2}) {
		t.Errorf("evicted %v", freed)
	}
}
