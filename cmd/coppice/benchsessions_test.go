package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/bench"
)

func TestBenchSessions(t *testing.T) {
	t.Parallel()
	flags := []string{"bench", "sessions", "--preset", "nano", "--fork-tokens", "10,50", "--forks", "20", "--agents", "2", "--sub-agents", "2", "--shared-tokens", "100",
		"--sessions", "4", "--private-tokens", "64", "--pool-sessions", "2", "--checked", "2", "--dir", t.TempDir()}
	out, stderr, ok := command(t, append(flags, "--json", "--tier", "host+disk")...)
	var f bench.SessionFigures
	if err := json.Unmarshal([]byte(out), &f); !ok || err != nil {
		t.Fatalf("%v: %s%s", err, out, stderr)
	}
	if len(f.Forks) != 2 || f.Forks[1].Tokens != 50 || f.Agents.Agents != 2 || f.Agents.OverIdeal < 1 || f.Parks.Sessions != 4 || f.Parks.ParkedTokens != 4*64 || f.Parks.Checked != 2 {
		t.Errorf("%s", out)
	}
	out, stderr, ok = command(t, append(flags, "--parts", "forks")...)
	if !ok || !strings.Contains(out, "20 forks at 50 tokens") || strings.Contains(out, "parked") {
		t.Errorf("%s%s", out, stderr)
	}
	if _, stderr, ok = command(t, "bench", "sessions", "--parts", "spoons"); ok || !strings.Contains(stderr, "spoons") {
		t.Errorf("ok %v: %s", ok, stderr)
	}
}
