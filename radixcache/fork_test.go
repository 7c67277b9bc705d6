package radixcache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

// forkWorld grows and shrinks the children of one node through many runs and compares each
// match with a search through all of them.
type forkWorld struct {
	*testing.T
	c    *Cache
	rng  *rand.Rand
	free []kv.PageID
	wide bool // tokens from a large vocabulary
	stem int  // tokens that nearly all keys share
}

// key returns a page or the beginning of one. It differs from other keys anywhere after
// the stem, and sometimes within the stem too.
func (w *forkWorld) key(outside int) []kv.Token {
	page := w.c.cfg.PageTokens
	key := make([]kv.Token, page)
	if w.rng.IntN(4) == 0 {
		key = key[:1+w.rng.IntN(page)]
	}
	from := w.stem + w.rng.IntN(page-w.stem)
	if w.rng.IntN(outside) == 0 {
		from = w.rng.IntN(page)
	}
	for i := range w.stem {
		if i < len(key) {
			key[i] = 2 // siblings from outside are lower or higher
		}
	}
	for i := from; i < len(key); i++ {
		key[i] = kv.Token(w.rng.IntN(4))
		if w.wide {
			key[i] = kv.Token(w.rng.Uint32()) % MediaToken // up to the largest
		}
	}
	return key
}

func (w *forkWorld) insert() {
	page := []kv.PageID{w.free[len(w.free)-1]}
	w.free = w.free[:len(w.free)-1]
	_, w.free = w.c.Insert(keyOf(w.key(3*maxRun)...), page, w.free)
}

// match checks a match against the plain twin, which compares the key with each child.
func (w *forkWorld) match() {
	key := w.key(4)
	want, shares := Partial{}, 0
	whole := false
	if sp := w.c.alive[spaceKey{}]; sp != nil {
		for id := range w.c.children(sp.root) {
			n := &w.c.nodes[id]
			tokens := n.tokens.Slice()
			order := slices.Compare(tokens, key)
			shared := 0
			for shared < min(len(tokens), len(key)) && tokens[shared] == key[shared] {
				shared++
			}
			whole = whole || shared == w.c.cfg.PageTokens
			if shared > shares || shared == shares && shared > 0 && order < 0 {
				want, shares = Partial{Node: id, Tokens: shared}, shared
			}
		}
	}
	got := w.c.Match(keyOf(key...))
	if whole {
		if got.Node != want.Node || got.Tokens != len(key) {
			w.Fatalf("match %v: node %d for %d tokens, want node %d", key, got.Node, got.Tokens, want.Node)
		}
	} else if got.Node != Root || got.Partial != want {
		w.Fatalf("match %v: node %d, partial %+v, want %+v", key, got.Node, got.Partial, want)
	}
}

func (w *forkWorld) check() {
	if err := w.c.Check(); err != nil {
		w.Fatal(err)
	}
}

func TestForkAgainstAllChildren(t *testing.T) {
	most := 1200
	if invariants.Enabled { // each write walks everything
		most = 300
	}
	for _, page := range []int{1, 2, 3, 8} {
		for _, stem := range []int{0, page / 2} {
			for _, vocab := range []string{"small", "large"} {
				for seed := range uint64(3) {
					t.Run(fmt.Sprintf("page=%d/stem=%d/vocab=%s/seed=%d", page, stem, vocab, seed), func(t *testing.T) {
						w := &forkWorld{T: t, c: newCache(t, Config{PageTokens: page}), rng: rand.New(rand.NewPCG(seed, 3)), wide: vocab == "large", stem: stem}
						for i := range most {
							w.free = append(w.free, kv.PageID(i))
						}
						for _, target := range []int{most, 2, most / 2, most / 3, most, 0} { // pages left free
							for range 4 * most {
								switch grow := w.rng.IntN(8); {
								case len(w.free) > 1 && (grow > 1 && len(w.free) > target || grow == 0):
									w.insert()
								case grow > 1 && len(w.free) < target || grow == 1:
									w.free = w.c.Evict(1, w.free)
								}
								if w.rng.IntN(20) == 0 {
									w.match()
								}
								if w.rng.IntN(200) == 0 {
									w.check()
								}
							}
						}
						w.free = w.c.Evict(most, w.free)
						if w.check(); len(w.free) != most {
							t.Errorf("%d pages of %d came back", len(w.free), most)
						}
					})
				}
			}
		}
	}
}

// A match among many siblings does not allocate, and splits keep siblings in order.
func TestWideForksDoNotAllocate(t *testing.T) {
	c := newCache(t, Config{PageTokens: 2})
	const n = 1000
	for i := range kv.Token(n) {
		c.Insert(keyOf(7, i, i, i), []kv.PageID{kv.PageID(2 * i), kv.PageID(2*i + 1)}, nil)
	}
	for i := kv.Token(0); i < n; i += 3 {
		c.Unpin(c.Pin(c.Match(keyOf(7, i)))) // splits
	}
	if err := c.Check(); err != nil || c.Stats().Splits != (n+2)/3 {
		t.Fatalf("%d splits, %v", c.Stats().Splits, err)
	}
	if invariants.Enabled {
		return // Check allocates
	}
	i := kv.Token(0)
	key := toks(7, 0, 0, 0)
	if allocs := testing.AllocsPerRun(100, func() {
		i += 7
		key[1], key[2], key[3] = i, i, i+i%2
		m := c.Match(keyOf(key...))
		c.PinNode(m.Node)
		c.Unpin(m.Node)
	}); allocs != 0 {
		t.Errorf("%v allocations per match, pin and unpin, want 0", allocs)
	}
}
