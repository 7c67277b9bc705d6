package main

import (
	"encoding/json"
	"testing"

	"github.com/coppice-llm/coppice/gateway/sizing"
)

func TestBenchFleet(t *testing.T) {
	args := []string{"bench", "fleet", "--workers", "4", "--sessions", "16", "--tokens", "640", "--turn-tokens", "32", "--rate", "400", "--duration", "20ms", "--hold", "1ms", "--churn", "200"}
	text, stderr, ok := command(t, append(args, "--json")...)
	var f sizing.Figures
	if err := json.Unmarshal([]byte(text), &f); err != nil || !ok || f.Workers != 4 || f.Blocks != 16*40 || f.Steady.HitRate == 0 {
		t.Fatalf("ok %v, %v: %s%s", ok, err, text, stderr)
	}
	refused(t, []string{"--workers is 0"}, "bench", "fleet", "--workers", "0")
	refused(t, []string{"at most half of Sessions"}, "bench", "fleet", "--sessions", "100")
}
