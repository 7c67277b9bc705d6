package engine

import "testing"

// TestDraftsCost adds drafts to a decode row, as AddDrafts describes it.
func TestDraftsCost(t *testing.T) {
	c := StepCost{Step: 1, Row: 10, Context: 100, Draft: 1e4, Pair: 1e6}
	var s StepShape
	s.Add(10, 1)
	if got := c.Fixed(&s); got != 1111 || c.Prompts(&s) != 0 {
		t.Errorf("a decode row costs %v and %v, want 1111 and 0", got, c.Prompts(&s))
	}
	s.AddDrafts(11, 3)
	if got, want := c.Fixed(&s), 1111+3e4+39e6; got != want || c.drafts(&s) != 3e4+39e6 || c.Prompts(&s) != 0 {
		t.Errorf("with 3 drafts it costs %v, of which %v for drafts and %v for prompts, want %v", got, c.drafts(&s), c.Prompts(&s), want)
	}
}
