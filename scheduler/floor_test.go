package scheduler

import (
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// stepsBeside returns how many steps a prompt of n tokens takes while sequences decode.
func stepsBeside(t *testing.T, cfg Config, rows, n int) int {
	t.Helper()
	const pageTokens = 16
	pages := (rows + 1) * 64
	info := engine.Info{Name: "null", Vocab: 1 << 20, MaxPositions: 1 << 20, PageTokens: pageTokens, NumPages: pages,
		MaxSlots: rows + 1, MaxRows: rows + 1, MaxTokens: 1 << 20, MaxInflight: 1}
	cfg.LeaseLowPages, cfg.LeaseBulkPages, cfg.LeaseHighPages = pages, pages, pages
	s, err := New(cfg, info)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]kv.PageID, s.Want())
	for i := range all {
		all[i] = kv.PageID(i)
	}
	s.Grant(all, 0)
	l := &loaded{s: s}
	for i := range rows {
		if err := s.Add(0, Request{ID: RequestID(i + 1), Prompt: []kv.Token{kv.Token(1000 + i)}, MaxTokens: 300}); err != nil {
			t.Fatal(err)
		}
	}
	for len(s.running.all) < rows || len(s.running.prefilling) > 0 {
		l.complete(s.Next(0))
	}
	prompt := make([]kv.Token, n)
	if err := s.Add(0, Request{ID: 100_000, Prompt: prompt, MaxTokens: 5}); err != nil {
		t.Fatal(err)
	}
	for steps := 1; steps < 1000; steps++ {
		l.complete(s.Next(0))
		for _, o := range l.out {
			if o.Request == 100_000 {
				return steps
			}
		}
	}
	t.Fatal("the prompt starves")
	return 0
}

// TestPromptsHaveAFloor checks that a prompt gets its part of the step however many
// sequences decode: half by default, and a quarter if they fill the budget that the caller
// set.
func TestPromptsHaveAFloor(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want int
	}{
		{Config{}, 3},                                  // 512 a step, 128 of them the prompt's chunk
		{Config{StepTokens: 256}, 5},                   // 64 of 256
		{Config{StepTokens: 256, PromptFloor: 128}, 3}, // 128 of 256
		{Config{StepTokens: 8}, 150},                   // 2 of 8, without a lower bound
	} {
		if got := stepsBeside(t, c.cfg, 255, 300); got != c.want {
			t.Errorf("StepTokens %d, PromptFloor %d: a prompt of 300 tokens with 255 decoding sequences took %d steps, want %d",
				c.cfg.StepTokens, c.cfg.PromptFloor, got, c.want)
		}
	}
}
