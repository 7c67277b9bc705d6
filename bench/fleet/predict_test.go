package fleet

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// TestPredictionsHold checks predictions for working sets larger than the caches, where the
// router's view of the caches must be accurate. Config.Predict counts a prompt for some
// seconds, even after its eviction, and is far off. Config.PredictRequests counts only
// prompts of open requests; it is accurate and gives more hits than events alone. A
// restarted worker gets its share of the requests. Without -every only the smaller working set is tried.
func TestPredictionsHold(t *testing.T) {
	notUnderInvariants(t)
	for i, c := range []struct {
		groups, kvTokens int
		off              float64 // least error of Config.Predict, in points
	}{
		{48, 3 << 14, 20},
		{96, 3 << 14, 40},
	} {
		if i > 0 && !*everyFleet {
			break
		}
		trace, err := Generate(fmt.Sprintf("groups:%d", c.groups), 2000, 3, 3)
		if err != nil {
			t.Fatal(err)
		}
		base := Config{Workers: 3, Clients: 24, KVTokens: c.kvTokens, Seed: 1, EventDelay: time.Millisecond, RestartAt: 20 * time.Second}
		figures := func(name string, change func(*Config)) (predicted, actual float64, r Result) {
			cfg := base
			change(&cfg)
			r = played(t, cfg, trace)
			predicted, actual = 100*float64(r.PromisedTokens)/float64(r.PromptTokens), 100*r.HitRate
			t.Logf("%d groups, %s: predicted %.1f %%, cached %.1f %%, %.1f requests/s, share of the restarted worker %.2f", c.groups, name, predicted, actual, r.RequestsPerS, r.RestartShare)
			return predicted, actual, r
		}
		_, events, _ := figures("events alone", func(*Config) {})
		was, is, _ := figures("by time", func(c *Config) { c.Predict = 5 * time.Second })
		if was-is < c.off {
			t.Errorf("%d groups: by time %.1f %% are predicted and %.1f %% cached: the caches have room for what is asked", c.groups, was, is)
		}
		predicted, cached, r := figures("by request", func(c *Config) { c.PredictRequests = true })
		if math.Abs(predicted-cached) > 3 || cached < events-1 {
			t.Errorf("%d groups: %.1f %% are predicted and %.1f %% cached, %.1f %% by events alone", c.groups, predicted, cached, events)
		}
		if r.RestartShare < 0.7 {
			t.Errorf("%d groups: the restarted worker gets %.2f of its share", c.groups, r.RestartShare)
		}
	}
}
