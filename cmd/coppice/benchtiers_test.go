package main

import (
	"encoding/json"
	"testing"

	"github.com/coppice-llm/coppice/bench"
)

// TestBenchTiersLongPrompts: prompts may be longer than the positions of a generated model and half of the
// default pool, and a restarted node finds them on disk. On a loaded machine a read may come too late, and the node then
// computes the prompt instead, as it should. So the restart has several tries.
func TestBenchTiersLongPrompts(t *testing.T) {
	t.Parallel()
	const tries = 5
	for try := 1; ; try++ {
		switch found := longPromptsFound(t); {
		case found >= 0.9:
			return
		case try == tries:
			t.Fatalf("%.2f of the prompts were found after the restart, in the last of %d tries", found, tries)
		}
	}
}

// longPromptsFound runs the benchmark, checks its runs, and returns the share of prompts that the node with all tiers found
// after its restart.
func longPromptsFound(t *testing.T) float64 {
	t.Helper()
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
	return runs[len(runs)-1].RestartHitRate
}

// TestBenchTiersPTX runs the benchmark on the interpreter of CUDA's kernels: tiers change no bit.
func TestBenchTiersPTX(t *testing.T) {
	t.Parallel()
	out, stderr, ok := command(t, "bench", "tiers", "--backend", "ptxvm", "--preset", "nano", "--prompt-tokens", "20", "--pool-tokens", "48", "--working-sets", "2", "--rounds", "1", "--json")
	var runs []bench.TierRun
	if !ok || json.Unmarshal([]byte(out), &runs) != nil || len(runs) != len(bench.TierConfigs) {
		t.Fatalf("%s%s", out, stderr)
	}
	for _, r := range runs {
		if !r.Identical || r.LeakedPages != 0 || r.ComputedTokens == 0 {
			t.Errorf("%+v", r)
		}
	}
	refused(t, []string{"--kv-type is for --backend cpu"}, "bench", "tiers", "--backend", "ptxvm", "--kv-type", "f16")
}
