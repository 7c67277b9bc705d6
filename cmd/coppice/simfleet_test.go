package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

func TestSimFleet(t *testing.T) {
	args := []string{"sim", "fleet", "--requests", "40", "--workers", "2,3", "--policies", "latency,round-robin"}
	one, stderr, ok := command(t, args...)
	if !ok || stderr != "" || strings.Count(one, "round-robin") != 2 || !strings.Contains(one, "TTFT p99") || !strings.Contains(one, "chat, 3 workers: 40 requests at") {
		t.Fatalf("ok %v: %s%s", ok, stderr, one)
	}
	if again, _, _ := command(t, args...); again != one {
		t.Errorf("the same flags gave %s and %s", one, again)
	}
	if timed, _, ok := command(t, append(args, "--time", "--markdown")...); !ok || !strings.Contains(timed, "| select |") {
		t.Errorf("ok %v: %s", ok, timed)
	}
	text, _, ok := command(t, "sim", "fleet", "--requests", "20", "--worker", "mocker", "--event-delay", "5ms", "--json", "--weight", "itl=0.5;backlog=0",
		"--traces", "unique,"+filepath.Join("..", "..", "bench", "testdata", "mooncake", "conversation-300.jsonl"))
	var table struct {
		Worker  string
		ITL     float64  `json:"itl_weight"`
		Backlog *float64 `json:"backlog_weight"`
		Fleets  []struct {
			Trace    string
			Policies []struct{ Policy string }
		}
	}
	if err := json.Unmarshal([]byte(text), &table); err != nil || !ok {
		t.Fatal(err, text)
	}
	if table.Worker != "mocker" || table.ITL != 0.5 || table.Backlog == nil || *table.Backlog != 0 || len(table.Fleets) != 2 || table.Fleets[1].Trace != "conversation-300" || len(table.Fleets[0].Policies) != 8 {
		t.Errorf("%+v", table)
	}
}

// TestSimFleetPredicts checks that the router's predictions are accurate in a fleet whose
// working set exceeds its caches, with one worker restarted.
func TestSimFleetPredicts(t *testing.T) {
	text, stderr, ok := command(t, "sim", "fleet", "--requests", "300", "--workers", "2", "--policies", "latency", "--traces", "groups:16", "--kv-tokens", "20000",
		"--predict-requests", "--restart-at", "3s", "--json")
	var table struct {
		Fleets []struct {
			Policies []struct {
				Promised int     `json:"promised_tokens"`
				Cached   int     `json:"cached_tokens"`
				Share    float64 `json:"restart_share"`
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &table); err != nil || !ok || len(table.Fleets) != 1 || len(table.Fleets[0].Policies) != 1 {
		t.Fatal(err, text, stderr)
	}
	p := table.Fleets[0].Policies[0]
	if p.Cached == 0 || p.Promised < p.Cached*9/10 || p.Promised > p.Cached*11/10 || p.Share < 0.5 {
		t.Errorf("%+v", p)
	}
}

func TestSimFleetRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"--requests is 0":                {"--requests", "0"},
		"exclude each other":             {"--predict", "5s", "--predict-requests"},
		"--kv-tokens is 0":               {"--kv-tokens", "0"},
		"--step-tokens is 0":             {"--step-tokens", "0"},
		"--load is 0":                    {"--load", "0"},
		"unknown trace":                  {"--traces", "chatter"},
		"--traces: can't read the trace": {"--traces", "none.jsonl"},
		"unknown policy":                 {"--policies", "best"},
		"want buckets:N:turn":            {"--policies", "latency,buckets:2"},
		"unknown worker":                 {"--worker", "best"},
		"Weights: ITL is -1":             {"--weight=itl=-1", "--requests", "20"},
		`no weight "speed"`:              {"--weight=speed=1", "--requests", "20"},
		"0 workers, want 1":              {"--workers", "0"},
		"--each is for --decisions":      {"--each"},
		"omit --workers":                 {"--decisions", "sim.go", "--workers", "3"},
		"omit --event-delay":             {"--decisions", "sim.go", "--event-delay", "3s"},
		"omit buckets":                   {"--decisions", "sim.go", "--policies", "buckets:2:turn"},
		"--decisions: open":              {"--decisions", "none.jsonl"},
		"route --record writes such":     {"--decisions", "sim.go"},
		"at least 2 gateways":            {"--lag", "1s"},
		"want PredictRequests":           {"--gateways", "2", "--predict", "1s"},
	} {
		refused(t, []string{want}, append([]string{"sim", "fleet"}, args...)...)
	}
}
