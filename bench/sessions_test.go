package bench

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestSessionsBench plays all parts at a small size: agents compute at most 5 % more than they must, parked sessions come back
// from each tier with the same bits, no page leaks, and table and JSON have the figures.
func TestSessionsBench(t *testing.T) {
	cfg := SessionsConfig{
		Open:       openNano(t),
		ForkTokens: []int{10, 1000}, Forks: 50, Agents: 3, SubAgents: 2, SharedTokens: 300, Sessions: 6, PrivateTokens: 100, PoolSessions: 2, Checked: 6,
		Dir: t.TempDir(), ExtentPages: 4, Seed: 1,
	}
	turns := 0
	f, err := PlaySessions(t.Context(), cfg, func() { turns++ })
	if err != nil {
		t.Fatal(err)
	}
	if a := f.Agents; a.IdealTokens != 300+3*(32+1+2*(32+1+32)+32) || a.ComputedTokens < a.IdealTokens || a.OverIdeal > 1.05 {
		t.Errorf("agents: %+v", a)
	}
	if len(f.Forks) != 2 || f.Forks[1].Tokens != 1000 || f.Forks[1].ForksPerSecond <= 0 || f.LeakedPages() != 0 || turns != cfg.SessionSteps() {
		t.Errorf("%d turns of %d, forks %+v, %d pages leaked", turns, cfg.SessionSteps(), f.Forks, f.LeakedPages())
	}
	checkParks(t, f.Parks)
	checkSessionReport(t, f)
	cfg.Parts = []string{"parks"}
	for _, cfg.Tier = range []string{"disk", "host+disk"} {
		f, err := PlaySessions(t.Context(), cfg, nil)
		if err != nil || f.Forks != nil || f.Agents != nil || cfg.SessionSteps() != 18 {
			t.Fatalf("%v: %+v, %d steps", err, f, cfg.SessionSteps())
		}
		checkParks(t, f.Parks)
	}
	for want, cfg := range map[string]SessionsConfig{`a part is "fork"`: {Parts: []string{"fork"}}, `Tier is "ram"`: {Tier: "ram"}, "Agents is -1": {Agents: -1}} {
		if _, err := PlaySessions(t.Context(), cfg, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// checkParks checks the figures of 6 sessions of 100 tokens: of each, 96 of 107 tokens with a KV are parked, in whole pages of 16.
func checkParks(t *testing.T, p *ParkFigures) {
	t.Helper()
	if !p.Identical || p.Checked != 6 || p.ParkedTokens != 6*96 || p.ParkedBytes <= 0 || p.ResumedTokens == 0 || p.ResumedTokens > p.ParkedTokens || p.LeakedPages != 0 {
		t.Errorf("%s: %+v", p.Tier, p)
	}
}

// checkSessionReport checks the keys of the JSON, and that the table has no empty part.
func checkSessionReport(t *testing.T, f *SessionFigures) {
	t.Helper()
	var b bytes.Buffer
	if err := WriteJSON(&b, f); err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(b.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	want := []string{"checked", "identical", "leaked_pages", "park_ms", "parked_bytes", "parked_tokens", "pool_tokens", "prefill_ms", "private_tokens", "recomputed_tokens",
		"resume_ms", "resume_of_prefill", "resumed_tokens", "sessions", "tier"}
	if got := slices.Sorted(maps.Keys(all["parks"].(map[string]any))); !slices.Equal(got, want) {
		t.Errorf("the fields are %v, want %v", got, want)
	}
	b.Reset()
	if err := WriteTable(&b, f); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"a fork", "computed over the best", "resume of prefill", "same bits, of 6 checked", "leaked pages"} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("no %q in %s", line, b.String())
		}
	}
}
