package mempool

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

var testLayout = Layout{PageTokens: 4, PageBytes: 64, ExtentPages: 4}

func seq(from, n int) []kv.Token {
	t := make([]kv.Token, n)
	for i := range t {
		t[i] = kv.Token(from + i)
	}
	return t
}

func TestLayoutOf(t *testing.T) {
	for _, tc := range []struct{ pageTokens, pageBytes, want int }{
		{16, 2 << 20, 1}, {16, 1 << 20, 1}, {16, 1<<20 - 4, 2}, {16, 64 << 10, 16}, {16, 48 << 10, 32}, {1, 2048, 512}, {256, 64, 256},
	} {
		l := LayoutOf(tc.pageTokens, tc.pageBytes)
		if l.ExtentPages != tc.want || l.Validate() != nil {
			t.Errorf("pages of %d tokens, %d bytes: extents of %d pages (%v), want %d", tc.pageTokens, tc.pageBytes, l.ExtentPages, l.Validate(), tc.want)
		}
	}
	for _, l := range []Layout{{}, {1, 1, 0}, {1, MaxExtentBytes + 1, 1}, {MaxExtentTokens, 1, 2}, {1, 1 << 20, 1025}} {
		if l.Validate() == nil {
			t.Errorf("%+v is valid", l)
		}
	}
	if l := (Layout{1, 1 << 20, 1024}); l.Validate() != nil {
		t.Error(l.Validate())
	}
}

// TestExtents: pages are smaller than blocks, and after the full extents a tail and a part of a
// page remain.
func TestExtents(t *testing.T) {
	ns := kv.Namespace{Salt: "a"}
	media := []kv.Media{{At: 2, Tokens: 3, Hash: 7}, {At: 14, Tokens: 4, Hash: 8}}
	got := testLayout.AppendExtents(nil, ns, seq(0, 16+16+9), media)
	if len(got) != 3 || len(got[0].Tokens) != 16 || len(got[2].Tokens) != 8 || got[2].Start != 32 {
		t.Fatalf("extents %+v", got)
	}
	if len(got[0].Media) != 2 || len(got[1].Media) != 1 || len(got[2].Media) != 0 {
		t.Errorf("media %v, %v, %v", got[0].Media, got[1].Media, got[2].Media)
	}
	seen := map[Key]bool{}
	for i, x := range got {
		if err := testLayout.Check(&x); err != nil || seen[x.Key] || i > 0 && x.Parent != got[i-1].Key {
			t.Errorf("extent %d: %v", i, err)
		}
		seen[x.Key] = true
	}
	for name, other := range map[string][]Extent{
		"namespace":        testLayout.AppendExtents(nil, kv.Namespace{LoRA: "a"}, seq(0, 16), media),
		"media":            testLayout.AppendExtents(nil, ns, seq(0, 16), media[:1]),
		"tokens":           testLayout.AppendExtents(nil, ns, seq(1, 16), media),
		"another position": testLayout.AppendExtents(nil, ns, seq(16, 16), media),
		"length":           testLayout.AppendExtents(nil, ns, seq(0, 12), media),
	} {
		if seen[other[0].Key] {
			t.Errorf("another %s has the same key", name)
		}
	}
}

// TestSplitInsideExtent: two sequences that differ inside an extent have an extent each, and each
// extent serves the other sequence with the pages that they share.
func TestSplitInsideExtent(t *testing.T) {
	a := testLayout.AppendExtents(nil, kv.Namespace{}, seq(0, 32), nil)
	other := slices.Concat(seq(0, 16+9), seq(500, 7))
	b := testLayout.AppendExtents(nil, kv.Namespace{}, other, nil)
	if a[0].Key != b[0].Key || a[1].Key == b[1].Key {
		t.Fatal("branches part where they agree, or share what differs")
	}
	if n := testLayout.SharedPages(&a[1], &b[1]); n != 2 {
		t.Errorf("%d pages are shared, want 2: 9 tokens agree", n)
	}
	ix := NewIndex(testLayout)
	for i := range a {
		if _, err := ix.Add(&a[i], 1, int32(i)); err != nil {
			t.Fatal(err)
		}
	}
	hits := match(ix, kv.Namespace{}, other)
	if len(hits) != 2 || hits[1].Key != a[1].Key || hits[1].Pages != 2 {
		t.Errorf("hits %+v", hits)
	}
	if _, err := ix.Add(&b[1], 1, 9); err != nil {
		t.Fatal(err)
	}
	if hits = match(ix, kv.Namespace{}, other); len(hits) != 2 || hits[1].Place != 9 || hits[1].Pages != 4 {
		t.Errorf("hits %+v", hits)
	}
	// A medium that lies across the shared pages parts them too.
	c := testLayout.AppendExtents(nil, kv.Namespace{}, seq(0, 16), []kv.Media{{At: 7, Tokens: 2, Hash: 1}})
	if n := testLayout.SharedPages(&c[0], &a[0]); n != 1 {
		t.Errorf("%d pages are shared, want 1: a medium begins in the second", n)
	}
}

// TestTail: a tail serves a longer sequence, and has no children.
func TestTail(t *testing.T) {
	ix := NewIndex(testLayout)
	short := testLayout.AppendExtents(nil, kv.Namespace{}, seq(0, 24), nil)
	for i := range short {
		ix.Add(&short[i], 1, 0)
	}
	if hits := match(ix, kv.Namespace{}, seq(0, 40)); len(hits) != 2 || hits[1].Pages != 2 {
		t.Errorf("hits %+v", hits)
	}
	child := Extent{Parent: short[1].Key, Start: 32, Tokens: seq(32, 4)}
	child.Key = keyOf(&child)
	if err := ix.CanAdd(&child); !errors.Is(err, ErrOrphan) {
		t.Errorf("an extent below a tail: %v", err)
	}
}

// naiveIndex is the oracle: a slice.
type naiveIndex struct {
	all  []naiveEntry
	now  int
	pins map[Key]int
}

type naiveEntry struct {
	Extent
	used int
}

func (n *naiveIndex) find(k Key) int {
	return slices.IndexFunc(n.all, func(e naiveEntry) bool { return e.Key == k })
}

func (n *naiveIndex) leaf(k Key) bool {
	return !slices.ContainsFunc(n.all, func(e naiveEntry) bool { return e.Parent == k })
}

func (n *naiveIndex) remove(k Key) {
	i := n.find(k)
	e := n.all[i]
	n.all = slices.Delete(n.all, i, i+1)
	delete(n.pins, k)
	if p := n.find(e.Parent); p >= 0 {
		n.all[p].used = max(n.all[p].used, e.used)
	}
}

func (n *naiveIndex) victim(of *kv.Namespace) (best Key, ok bool) {
	used := 0
	for _, e := range n.all {
		if (of == nil || e.Namespace == *of) && n.leaf(e.Key) && n.pins[e.Key] == 0 && (!ok || e.used < used) {
			best, ok, used = e.Key, true, e.used
		}
	}
	return best, ok
}

// FuzzIndex plays operations on the index and on the oracle.
func FuzzIndex(f *testing.F) {
	f.Add(uint64(1), uint16(300))
	f.Add(uint64(2), uint16(900))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		rng := rand.New(rand.NewPCG(seed, 1))
		ix, n := NewIndex(testLayout), &naiveIndex{pins: map[Key]int{}}
		spaces := []kv.Namespace{{}, {Salt: "a"}, {Salt: "b"}}
		for range min(int(steps), 2000) {
			ns := spaces[rng.IntN(3)]
			tokens := slices.Concat(seq(rng.IntN(2), 16), seq(rng.IntN(3), 16), seq(rng.IntN(3), 4*rng.IntN(4)))
			xs := testLayout.AppendExtents(nil, ns, tokens, nil)
			x := xs[rng.IntN(len(xs))]
			switch op := rng.IntN(10); {
			case op < 4:
				added, err := ix.Add(&x, len(x.Tokens), 0)
				n.now++
				orphan := !x.Parent.IsZero() && n.find(x.Parent) < 0
				if i := n.find(x.Key); i >= 0 {
					n.all[i].used = n.now
					if added || err != nil {
						t.Fatalf("added twice: %v %v", added, err)
					}
				} else if orphan != (err != nil) {
					t.Fatalf("orphan %v: %v", orphan, err)
				} else if !orphan {
					n.all = append(n.all, naiveEntry{x, n.now})
				} else {
					n.now-- // the index's clock did not move either, though only order counts
				}
			case op < 6:
				ix.Touch(x.Key)
				if i := n.find(x.Key); i >= 0 {
					n.now++
					n.all[i].used = n.now
				}
			case op < 7:
				_, err := ix.Remove(x.Key)
				if can := n.find(x.Key) >= 0 && n.leaf(x.Key); can != (err == nil) {
					t.Fatalf("remove: %v", err)
				} else if can {
					n.remove(x.Key)
				}
			case op < 8:
				for _, h := range ix.RemoveTree(x.Key, nil) {
					if !n.leaf(h.Key) {
						t.Fatal("a parent goes before its children")
					}
					n.remove(h.Key)
				}
				if n.find(x.Key) >= 0 {
					t.Fatal("RemoveTree left the extent")
				}
			case op < 9:
				if n.find(x.Key) >= 0 && n.pins[x.Key] < 2 {
					ix.Pin(x.Key)
					n.pins[x.Key]++
				} else if n.pins[x.Key] > 0 {
					ix.Unpin(x.Key)
					n.pins[x.Key]--
				}
			default:
				checkMatch(t, ix, n, ns, tokens)
			}
			compareIndex(t, ix, n, spaces)
		}
	})
}

// match returns the extents of ix that hold the beginning of a sequence without a gap, in order. For
// the first extent that ix does not have, it adds the Part, if there is one.
func match(ix *Index, ns kv.Namespace, tokens []kv.Token) (hits []Hit) {
	for _, x := range ix.layout.AppendExtents(nil, ns, tokens, nil) {
		i, ok := ix.at[x.Key]
		if !ok {
			if part, ok := ix.Part(&x); ok {
				hits = append(hits, part)
			}
			break
		}
		hits = append(hits, Hit{x.Key, ix.entries[i].place, ix.layout.Pages(&x)})
	}
	return hits
}

func checkMatch(t *testing.T, ix *Index, n *naiveIndex, ns kv.Namespace, tokens []kv.Token) {
	want := 0
	for _, x := range testLayout.AppendExtents(nil, ns, tokens, nil) {
		best := 0
		for _, e := range n.all {
			best = max(best, testLayout.SharedPages(&e.Extent, &x))
		}
		want += best
		if n.find(x.Key) < 0 {
			break
		}
	}
	got := 0
	for _, h := range match(ix, ns, tokens) {
		got += h.Pages
	}
	if got != want {
		t.Fatalf("%d pages match, want %d", got, want)
	}
}

func compareIndex(t *testing.T, ix *Index, n *naiveIndex, spaces []kv.Namespace) {
	if err := ix.Check(); err != nil {
		t.Fatal(err)
	}
	var bytes int64
	for _, e := range n.all {
		bytes += int64(len(e.Tokens))
	}
	if ix.Len() != len(n.all) || ix.Bytes() != bytes {
		t.Fatalf("%d extents, %d bytes; want %d, %d", ix.Len(), ix.Bytes(), len(n.all), bytes)
	}
	for i := -1; i < len(spaces); i++ {
		var of *kv.Namespace
		if i >= 0 {
			of = &spaces[i]
		}
		got, ok := ix.Victim(of)
		if want, wantOK := n.victim(of); got != want || ok != wantOK {
			t.Fatalf("victim of %v is %s (%v), want %s (%v)", of, got.Short(), ok, want.Short(), wantOK)
		}
	}
}
