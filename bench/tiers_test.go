package bench

import (
	"bytes"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/random"
)

// openNano returns a function that opens a node with the smallest model, a pool of this many tokens and tiers.
func openNano(t *testing.T) func(tokens int, tiers coppice.Tiers) (*coppice.Node, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "nano")
	if err := random.Generate(dir, random.Spec{Preset: random.Nano, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return func(tokens int, tiers coppice.Tiers) (*coppice.Node, error) {
		b, err := cpu.Open(m, cpu.Config{KVTokens: tokens, PageTokens: 16})
		if err != nil {
			return nil, err
		}
		return coppice.Open(coppice.Config{Backend: b, Tiers: tiers})
	}
}

// TestTiersBench plays a small working set: all bits equal those of a device with room
// for everything, no page leaks, and the JSON has its fields.
func TestTiersBench(t *testing.T) {
	cfg := TiersConfig{
		Open: openNano(t),
		Dir:  t.TempDir(), ExtentPages: 4, PoolTokens: 512, PromptTokens: 100, WorkingSets: []int{1, 4}, Clients: 2, Seed: 1,
	}
	asked := 0
	runs, err := PlayTiers(t.Context(), cfg, func() { asked++ })
	if err != nil {
		t.Fatal(err)
	}
	if want := cfg.TierSteps(16); len(runs) != 2*len(TierConfigs) || asked != want {
		t.Errorf("%d runs, %d requests of %d", len(runs), asked, want)
	}
	for _, r := range runs {
		if !r.Identical || r.LeakedPages != 0 || r.ComputedTokens < r.IdealComputedTokens || r.TTFTp50Millis <= 0 {
			t.Errorf("%+v", r)
		}
	}
	checkKeys(t, reread[[]map[string]any](t, runs)[0], `working_set config identical leaked_pages computed_tokens ideal_computed_tokens
		restored_tokens hit_rate_device hit_rate_host hit_rate_disk restart_hit_rate ttft_ms_p50 ttft_ms_p99`)
	if err := WriteTable(new(bytes.Buffer), runs); err != nil {
		t.Error(err)
	}
}

// reread returns a report as a program gets it that reads its JSON.
func reread[T any](t *testing.T, report any) (back T) {
	t.Helper()
	var b bytes.Buffer
	if err := WriteJSON(&b, report); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	return back
}

// checkKeys checks the names of the fields of an object, which other programs read. want has them in any order, separated by spaces.
func checkKeys(t *testing.T, object map[string]any, want string) {
	t.Helper()
	if got, want := slices.Sorted(maps.Keys(object)), slices.Sorted(slices.Values(strings.Fields(want))); !slices.Equal(got, want) {
		t.Errorf("the fields are %v, want %v", got, want)
	}
}
