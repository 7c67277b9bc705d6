package router

import "testing"

// TestHitTokens: a worker that reuses whole blocks of its own never reuses a prompt's last token, so of a prompt of
// whole blocks the last block does not count, whether it is cached or predicted.
func TestHitTokens(t *testing.T) {
	at := worker1(0)
	for _, c := range []struct {
		hit, prompt int
		cached      Overlap
		promised    int // blocks that another request of the worker will have computed
		want        Overlap
	}{
		{0, 64, Overlap{Device: 4}, 0, Overlap{Device: 4}},
		{16, 64, Overlap{Device: 4}, 0, Overlap{Device: 3}},
		{16, 65, Overlap{Device: 4}, 0, Overlap{Device: 4}},
		{16, 64, Overlap{Device: 2}, 0, Overlap{Device: 2}},
		{32, 64, Overlap{Device: 4}, 0, Overlap{Device: 2}},
		{32, 65, Overlap{Device: 4}, 0, Overlap{Device: 4}},
		{32, 100, Overlap{Device: 3}, 0, Overlap{Device: 2}}, // the other prompt goes on otherwise within a block of the worker
		{32, 31, Overlap{Device: 1}, 0, Overlap{}},
		{16, 64, Overlap{Device: 1, Host: 1, Object: 2}, 0, Overlap{Device: 1, Host: 1, Object: 1}},
		{32, 64, Overlap{Device: 1, Host: 1, Disk: 1, Shared: 1}, 0, Overlap{Device: 1, Host: 1}},
		{64, 64, Overlap{Device: 1, Host: 3}, 0, Overlap{}},
		{16, 64, Overlap{Device: 1}, 4, Overlap{Device: 3}},
		{16, 1, Overlap{}, 0, Overlap{}},
	} {
		r := newRouter(t, Config{BlockTokens: 16, Predict: true}, WorkerSpec{HitTokens: c.hit})
		prompt := chain(1, c.prompt/16)
		if c.promised > 0 {
			selected(t, r, 0, Request{PromptTokens: 16*c.promised + 1, Hashes: chain(1, c.promised)})
		}
		c.cached.Worker, c.want.Worker = at, at
		d := selected(t, r, 0, Request{PromptTokens: c.prompt, Hashes: prompt, Overlaps: []Overlap{c.cached}})
		if d.Overlap != c.want {
			t.Errorf("%+v: the overlap is %+v", c, d.Overlap)
		}
		// What it will compute is promised to later requests, from the first block that it does not reuse on.
		next := selected(t, r, 0, Request{PromptTokens: c.prompt + 64, Hashes: append(prompt, chain(2, 1)...), Overlaps: []Overlap{c.cached}})
		if whole := c.prompt / max(16, c.hit) * max(16, c.hit) / 16; next.Overlap.Blocks() != whole && c.prompt >= 16 {
			t.Errorf("%+v: the next request finds %d blocks, want %d", c, next.Overlap.Blocks(), whole)
		}
	}
	r, err := New(Config{BlockTokens: 16})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Join(0, at, WorkerSpec{BlockTokens: 16, HitTokens: -1}); err == nil {
		t.Error("negative HitTokens are accepted")
	}
}
