package main

import (
	"testing"

	"github.com/coppice-llm/coppice/server/view"
)

// TestTopTiers checks the line of tiers: used shares, tokens found, and failures.
func TestTopTiers(t *testing.T) {
	got := topTiers([]view.Tier{
		{Name: "device", Pages: 100, UsedPages: 50, HitTokens: 12345},
		{Name: "disk", Pages: 1000, UsedPages: 10, HitTokens: 77, Errors: 3, Failing: 1},
		{Name: "odd\x1b[2J"},
	})
	if want := "  device 50.0 %, 12.3k found  disk 1.0 %, 77 found, failing, 3 failed  odd·[2J 0.0 %, 0 found"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
