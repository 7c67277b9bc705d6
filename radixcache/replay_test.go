package radixcache

import (
	"math/rand/v2"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// workload is a seeded load of conversations: each turn's prompt is the whole
// history and something new, each answer is appended; all start with one of a
// few system prompts, whose length is no multiple of any page.
type workload struct {
	rng     *rand.Rand
	systems [][]kv.Token
	open    [][]kv.Token // histories
}

func newWorkload(seed uint64) *workload {
	w := &workload{rng: rand.New(rand.NewPCG(seed, 1))}
	for i := range 4 {
		w.systems = append(w.systems, w.text(nil, 100+37*i))
	}
	return w
}

func (w *workload) text(to []kv.Token, n int) []kv.Token {
	for range n {
		to = append(to, kv.Token(w.rng.IntN(32000)))
	}
	return to
}

// turn returns the next prompt, and a function that appends the answer to its history.
func (w *workload) turn() (prompt []kv.Token, answer func() []kv.Token) {
	if len(w.open) < 40 || w.rng.IntN(8) == 0 {
		w.open = append(w.open, append([]kv.Token(nil), w.systems[w.rng.IntN(4)]...))
	}
	i := w.rng.IntN(len(w.open))
	w.open[i] = w.text(w.open[i], 1+w.rng.IntN(80))
	return w.open[i], func() []kv.Token {
		w.open[i] = w.text(w.open[i], 1+w.rng.IntN(120))
		return w.open[i]
	}
}

func emptyCache(t *testing.T, cfg Config) *Cache {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// sums has the results of a replay.
type sums struct {
	prompt, hit, partial int // tokens
	evicted              uint64
}

// replay serves a load one request at a time from a pool of this many pages, in
// the way a scheduler does, and fails on a page that is lost or given twice.
func replay(t *testing.T, c *Cache, pool, turns int) sums {
	t.Helper()
	w, page := newWorkload(3), c.cfg.PageTokens
	free := make([]kv.PageID, pool)
	for i := range free {
		free[i] = kv.PageID(i)
	}
	var out sums
	for range turns {
		prompt, answer := w.turn()
		m := c.Match(Key{Tokens: prompt[:len(prompt)-1]})
		pages := c.AppendPages(m, nil)
		handle := c.Pin(m)
		out.prompt += len(prompt)
		out.hit += m.Tokens
		out.partial += m.Partial.Tokens

		tokens := answer()
		fresh := kv.CeilPages(len(tokens), page) - len(pages)
		free = c.Evict(fresh-len(free), free)
		if len(free) < fresh {
			t.Fatalf("%d pages free, %d wanted", len(free), fresh)
		}
		pages = append(pages, free[len(free)-fresh:]...)
		free = free[:len(free)-fresh]
		handle, free = c.Extend(handle, Key{Tokens: tokens}, pages, free)
		c.Unpin(handle)
		if got := len(free) + c.Stats().Pages; got != pool {
			t.Fatalf("%d free and cached pages of %d", got, pool)
		}
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	_, out.evicted = c.Stats().Evicted()
	return out
}

// TestReplayUnbounded: with room for all, each turn hits its whole history (or its system
// prompt), to the token if the partial page counts (C76). So the sum of hits and partial
// hits does not depend on the page size.
func TestReplayUnbounded(t *testing.T) {
	const turns = 600
	want := 0
	w, seen := newWorkload(3), map[kv.Token]int{} // first token after the shared beginning -> history
	shared := map[kv.Token]bool{}
	for range turns {
		prompt, answer := w.turn()
		start := len(w.systems[indexOfSystem(w, prompt)])
		switch own := prompt[start]; {
		case seen[own] > 0:
			want += seen[own]
		case shared[prompt[0]]:
			want += start
		}
		shared[prompt[0]] = true
		seen[prompt[start]] = len(answer())
	}
	for _, page := range []int{1, 4, 16, 64} {
		got := replay(t, emptyCache(t, Config{PageTokens: page}), 1<<20, turns)
		// Conversations may by chance agree in a token more than planned.
		if sum := got.hit + got.partial; sum < want || sum > want+want/1000 || got.evicted != 0 {
			t.Errorf("page %d: hit %d + %d tokens, evicted %d, want %d", page, got.hit, got.partial, got.evicted, want)
		}
	}
}

func indexOfSystem(w *workload, prompt []kv.Token) int {
	for i, s := range w.systems {
		if s[0] == prompt[0] && s[1] == prompt[1] {
			return i
		}
	}
	panic("prompt without a system prompt")
}

// TestReplaySums fixes the figures of a pool that is too small, so that a change of hits or
// evictions is seen and judged. Hits fall with larger pages, partial hits make up for it,
// and hits rise if leaves are evicted page by page.
func TestReplaySums(t *testing.T) {
	for _, tc := range []struct {
		page  int
		whole bool
		want  sums
	}{
		{1, false, sums{prompt: 498554, hit: 265080, partial: 0, evicted: 265415}},
		{16, false, sums{prompt: 498554, hit: 256896, partial: 5688, evicted: 17184}},
		{64, false, sums{prompt: 498554, hit: 237120, partial: 21192, evicted: 4684}},
		{1, true, sums{prompt: 498554, hit: 263888, partial: 0, evicted: 266709}},
		{16, true, sums{prompt: 498554, hit: 256256, partial: 5715, evicted: 17240}},
		{64, true, sums{prompt: 498554, hit: 234624, partial: 21338, evicted: 4738}},
	} {
		if got := replay(t, emptyCache(t, Config{PageTokens: tc.page, BlockTokens: 64, WholeLeaves: tc.whole}), 16384/tc.page, 800); got != tc.want {
			t.Errorf("page %d, whole leaves %v: %+v, want %+v", tc.page, tc.whole, got, tc.want)
		}
	}
}
