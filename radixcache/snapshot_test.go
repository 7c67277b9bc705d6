package radixcache

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/kv"
)

// grown returns a cache with a bit of everything: namespaces, private spaces, media, tails,
// removed and pinned nodes.
func grown(t testing.TB, cfg Config) *Cache {
	c := newCache(t, cfg)
	rng := rand.New(rand.NewPCG(5, 6))
	next := kv.PageID(0)
	for i := range 60 {
		key := Key{Namespace: kv.Namespace{Salt: []string{"", "a", "b"}[rng.IntN(3)], Model: []string{"", "m"}[rng.IntN(2)]}}
		for range 1 + rng.IntN(12) {
			key.Tokens = append(key.Tokens, kv.Token(rng.IntN(3)))
		}
		if rng.IntN(2) == 0 {
			key.PublicTokens = 4
		}
		if rng.IntN(3) == 0 {
			at := rng.IntN(len(key.Tokens))
			key.Media = []kv.Media{{At: at, Tokens: 1 + rng.IntN(len(key.Tokens)-at), Hash: uint64(rng.IntN(2))}}
		}
		m := c.Match(key)
		pages := c.AppendPages(m, nil)
		h := c.Pin(m)
		for len(pages) < kv.CeilPages(len(key.Tokens), c.cfg.PageTokens) {
			pages = append(pages, next)
			next++
		}
		h, _ = c.Extend(h, key, pages, nil)
		c.Prioritize(h, int32(rng.IntN(3)))
		c.Unpin(h)
		if i%7 == 6 {
			c.Evict(2, nil)
		}
	}
	return c
}

func describe(c *Cache) string {
	var b strings.Builder
	for v := range c.Walk() {
		n := &c.nodes[v.ID]
		fmt.Fprintf(&b, "%+v %d %v %v %v %d %d %d %d\n", v.Namespace, v.Start, v.Tokens, v.Pages, v.Leaf, v.Stamp, v.Hits, v.Priority, n.mark)
	}
	return b.String()
}

func TestSnapshotRoundTrip(t *testing.T) {
	for _, policy := range Policies() {
		for _, page := range []int{1, 2, 3} {
			cfg := Config{PageTokens: page, Policy: policy, Events: true}
			c := grown(t, cfg)
			var b bytes.Buffer
			if err := c.Snapshot(&b); err != nil {
				t.Fatal(err)
			}
			r := newCache(t, cfg)
			n, err := r.Restore(bytes.NewReader(b.Bytes()), nil)
			if want := c.Stats(); err != nil || n != want.Pages || r.Stats().Nodes != want.Nodes || r.Stats().EvictableTokens != want.Tokens {
				t.Fatalf("%v, page %d: restored %d pages, %v; %v", policy, page, n, err, r.Stats())
			}
			if got, want := describe(r), describe(c); got != want {
				t.Fatalf("%v, page %d: restored\n%s\nof\n%s", policy, page, got, want)
			}
			index := map[kv.Namespace]map[kv.BlockHash]int{}
			for _, ev := range r.TakeEvents(nil) {
				if err := applyEvent(index, ev); err != nil {
					t.Fatal(err)
				}
			}
			// From here on both evict the same, until one of them joins links that should be evicted
			// apart: the two have other links in their queues.
			same, lossy := 0, c.Stats().LossyJoins
			for range 400 {
				got, want := r.Evict(1, nil), c.Evict(1, nil)
				if r.Stats().LossyJoins > 0 || c.Stats().LossyJoins > lossy {
					continue
				}
				if same++; !slices.Equal(got, want) {
					t.Fatalf("%v, page %d: restored evicts %v, want %v", policy, page, got, want)
				}
			}
			if same < 20 {
				t.Errorf("%v, page %d: only %d evictions compared", policy, page, same)
			}
			if r.Stats().Nodes != 0 || len(r.media.ids) != 0 {
				t.Errorf("%v, page %d: left %v, %d media", policy, page, r.Stats(), len(r.media.ids))
			}
		}
	}
}

// TestRestoreIntoOtherPages: the tree's contents get other pages.
func TestRestoreIntoOtherPages(t *testing.T) {
	c := grown(t, Config{PageTokens: 2})
	var b bytes.Buffer
	if err := c.Snapshot(&b); err != nil {
		t.Fatal(err)
	}
	pages := make([]kv.PageID, c.Stats().Pages)
	for i := range pages {
		pages[i] = kv.PageID(1000 - i)
	}
	r := newCache(t, Config{PageTokens: 2})
	if n, err := r.Restore(bytes.NewReader(b.Bytes()), pages[1:]); err == nil || errors.Is(err, ErrSnapshot) || n != 0 || r.Stats().Nodes != 0 {
		t.Errorf("a page too few: %d, %v", n, err)
	}
	if n, err := r.Restore(bytes.NewReader(b.Bytes()), pages); err != nil || n != len(pages) {
		t.Fatalf("%d, %v", n, err)
	}
	var got []kv.PageID
	for v := range r.Walk() {
		got = append(got, v.Pages...)
	}
	if !slices.Equal(got, pages) {
		t.Errorf("pages %v, want %v", got, pages)
	}
	if _, err := r.Restore(bytes.NewReader(b.Bytes()), nil); err == nil || !strings.Contains(err.Error(), "want an empty one") {
		t.Errorf("into a cache that holds something: %v", err)
	}
	if _, err := newCache(t, Config{PageTokens: 4}).Restore(bytes.NewReader(b.Bytes()), nil); err == nil || !strings.Contains(err.Error(), "pages of 2 tokens") {
		t.Errorf("into other pages: %v", err)
	}
}

// TestDamagedSnapshots: each byte changed, each length, with and without a
// checksum that covers it up. Nothing panics, and nothing is half restored.
func TestDamagedSnapshots(t *testing.T) {
	cfg := Config{PageTokens: 2, Events: true}
	var b bytes.Buffer
	if err := grown(t, cfg).Snapshot(&b); err != nil {
		t.Fatal(err)
	}
	good := b.Bytes()
	try := func(what string, data []byte, mustFail bool) {
		t.Helper()
		c := newCache(t, cfg)
		_, err := c.Restore(bytes.NewReader(data), nil)
		if err == nil && mustFail {
			t.Errorf("%s: restored", what)
		}
		if err != nil && (c.Stats().Nodes != 0 || len(c.TakeEvents(nil)) > 0) {
			t.Errorf("%s: %v, yet %v", what, err, c.Stats())
		}
	}
	refused := 0
	for i := 0; i < len(good); i += 3 {
		bad := slices.Clone(good)
		bad[i] ^= 1 << (i % 8)
		try(fmt.Sprintf("byte %d", i), bad, true)
		if i < len(good)-8 {
			binary.LittleEndian.PutUint64(bad[len(bad)-8:], xxh3.Hash(bad[:len(bad)-8]))
			try(fmt.Sprintf("byte %d, with a checksum", i), bad, false) // other tokens are as good
			c := newCache(t, cfg)
			if _, err := c.Restore(bytes.NewReader(bad), nil); err != nil {
				refused++
			}
		}
		try(fmt.Sprintf("%d bytes", i), good[:i], true)
		cut := binary.LittleEndian.AppendUint64(slices.Clone(good[:i]), xxh3.Hash(good[:i]))
		if i < len(good)-8 {
			try(fmt.Sprintf("%d bytes, with a checksum", i), cut, true)
		}
	}
	if refused < 70 {
		t.Errorf("only %d damages were found where the checksum was right", refused)
	}
}

func FuzzRestore(f *testing.F) {
	var b bytes.Buffer
	if err := grown(f, Config{PageTokens: 2}).Snapshot(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes()[:b.Len()-8])
	f.Fuzz(func(t *testing.T, data []byte) {
		c := newCache(t, Config{PageTokens: 2, Events: true})
		c.Restore(bytes.NewReader(binary.LittleEndian.AppendUint64(data, xxh3.Hash(data))), nil)
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
	})
}
