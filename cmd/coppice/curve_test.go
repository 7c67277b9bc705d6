package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/bench"
)

func TestBenchCurve(t *testing.T) {
	recorded := filepath.Join(t.TempDir(), "recorded.jsonl")
	if err := os.WriteFile(recorded, []byte(mooncakeLines), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"bench", "curve", "--requests", "60", "--seed", "3", "--mooncake", recorded, "--room", "50", "--sizes", "1,2", "--samples", "4096"}
	stdout, stderr, ok := command(t, append(args, "--json")...)
	if !ok || stderr != "" {
		t.Fatalf("ok %v: %s", ok, stderr)
	}
	var got bench.CurveTable
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if got.Samples != 4096 || len(got.Traces) != 5 || got.Traces[0].Name != "chat" || len(got.Traces[0].Points) != 2 {
		t.Fatalf("printed %s", stdout)
	}
	if p := got.Traces[0].Points[1]; p.Simulated < 0.3 || p.Curve < p.Simulated-0.02 || p.Curve > p.Simulated+0.02 {
		t.Errorf("chat: %+v", p)
	}
	if last := got.Traces[4]; last.Name != "recorded" || last.Scale != 32 || last.Tokens != 32+47 {
		t.Errorf("the recorded trace is %+v", last)
	}
	for flag, want := range map[string]string{"": "trace size tokens", "--markdown": "| trace | size |"} {
		all := args
		if flag != "" {
			all = append(all[:len(all):len(all)], flag)
		}
		stdout, stderr, ok := command(t, all...)
		if !ok || stderr != "" || !strings.Contains(strings.Join(strings.Fields(stdout), " "), want) || !strings.Contains(stdout, "each stands for 32 served ones") {
			t.Errorf("%q: ok %v, %s%s", flag, ok, stderr, stdout)
		}
	}
	if stdout, _, ok := command(t, "bench", "curve", "--help"); !ok || !strings.Contains(stdout, "coppice bench curve --mooncake") {
		t.Errorf("help: ok %v, %s", ok, stdout)
	}
}

func TestBenchCurveBadInput(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{"no such file", []string{"--requests", "1", "--mooncake", filepath.Join(t.TempDir(), "missing")}, []string{"missing", "no such file"}},
		{"no requests", []string{"--requests", "0"}, []string{"Requests is 0"}},
		{"page of no tokens", []string{"--page-tokens", "0"}, []string{"--page-tokens is 0"}},
		{"no samples", []string{"--samples", "0"}, []string{"--samples is 0"}},
		{"few samples", []string{"--requests", "1", "--samples", "3"}, []string{"Samples is 3"}},
		{"no room", []string{"--room", "0"}, []string{"--room is 0, want more than 0 and at most 100"}},
		{"too much room", []string{"--room", "101"}, []string{"--room is 101"}},
		{"no size", []string{"--requests", "1", "--sizes", "1,0"}, []string{"Factors has 0"}},
		{"two formats", []string{"--json", "--markdown"}, []string{"--json", "--markdown"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refused(t, tc.want, append([]string{"bench", "curve"}, tc.args...)...)
		})
	}
}

// TestLoadTracesTooLarge: a number of requests whose traces do not fit into memory is refused while
// the first trace is made.
func TestLoadTracesTooLarge(t *testing.T) {
	_, err := (&tracesFlags{Requests: bench.MaxTraceRequests, Seed: 1}).load(1 << 20)
	if err == nil || !strings.Contains(err.Error(), "want fewer requests") {
		t.Errorf("error %v, want one that asks for fewer requests", err)
	}
	if _, err := (&tracesFlags{Requests: 2, Seed: 1}).load(traceTokens()); err != nil {
		t.Error(err)
	}
}
