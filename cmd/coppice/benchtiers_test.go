package main

import (
	"encoding/json"
	"testing"

	"github.com/coppice-llm/coppice/bench"
)

// TestBenchTiersLongPrompts: prompts may be longer than the positions of a generated model and half of the
// default pool, and a restarted node finds them on disk.
func TestBenchTiersLongPrompts(t *testing.T) {
	t.Parallel()
	out, stderr, ok := command(t, "bench", "tiers", "--preset", "nano", "--prompt-tokens", "4200", "--working-sets", "1", "--rounds", "1", "--json")
	if !ok {
		t.Fatal(stderr)
	}
	var runs []bench.TierRun
	if err := json.Unmarshal([]byte(out), &runs); err != nil {
		t.Fatal(err)
	}
	if len(runs) != len(bench.TierConfigs) {
		t.Fatalf("%d runs", len(runs))
	}
	for _, r := range runs {
		if !r.Identical || r.ComputedTokens < 4200 {
			t.Errorf("%+v", r)
		}
	}
	if r := runs[len(runs)-1]; r.RestartHitRate < 0.9 {
		t.Errorf("%s: %.2f of the prompts were found after the restart", r.Config, r.RestartHitRate)
	}
}
