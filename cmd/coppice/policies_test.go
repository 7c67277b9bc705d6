package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/bench"
)

const mooncakeLines = `{"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": [1, 2]}
{"timestamp": 1, "input_length": 1500, "output_length": 5, "hash_ids": [1, 2, 3]}
`

func TestBenchPolicies(t *testing.T) {
	recorded := filepath.Join(t.TempDir(), "recorded.jsonl")
	if err := os.WriteFile(recorded, []byte(mooncakeLines), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"bench", "policies", "--requests", "60", "--seed", "3", "--mooncake", recorded, "--room", "10,50", "--policy", "lru"}
	stdout, stderr, ok := command(t, append(args, "--json")...)
	if !ok || stderr != "" {
		t.Fatalf("ok %v: %s", ok, stderr)
	}
	var got bench.PolicyTable
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Traces) != 5 || got.Traces[0].Name != "chat" || len(got.Traces[0].Capacities) != 2 || got.Traces[0].Capacities[0].Policies[0].SavedTokens == 0 {
		t.Errorf("printed %s", stdout)
	}
	if last := got.Traces[len(got.Traces)-1]; last.Name != "recorded" || last.Scale != 32 || last.Tokens != 32+47 || last.IdealTokens != 32 {
		t.Errorf("the recorded trace is %+v", last)
	}
	for flag, want := range map[string]string{"": "trace  room", "--markdown": "| trace | room |"} {
		all := args
		if flag != "" {
			all = append(all[:len(all):len(all)], flag)
		}
		stdout, stderr, ok := command(t, all...)
		if !ok || stderr != "" || !strings.Contains(strings.Join(strings.Fields(stdout), " "), strings.Join(strings.Fields(want), " ")) || !strings.Contains(stdout, "each stands for 32 served ones") {
			t.Errorf("%q: ok %v, %s%s", flag, ok, stderr, stdout)
		}
	}
}

// TestBenchPoliciesAgents checks that the flag selects the traces of agents, at their own capacities.
func TestBenchPoliciesAgents(t *testing.T) {
	stdout, stderr, ok := command(t, "bench", "policies", "--agents", "--requests", "80", "--policy", "lru", "--policy", "session", "--json")
	var got bench.PolicyTable
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || !ok || stderr != "" {
		t.Fatalf("ok %v: %s %v", ok, stderr, err)
	}
	if len(got.Traces) != 6 || got.Traces[0].Name != "agents" || got.Traces[0].Capacities[0].InformedTokens == 0 || got.Traces[0].LiveSetTokens == 0 || got.Traces[0].Capacities[2].Share != 1.2 {
		t.Errorf("printed %s", stdout)
	}
}

func TestBenchPoliciesBadInput(t *testing.T) {
	dir := t.TempDir()
	damaged := filepath.Join(dir, "damaged")
	if err := os.WriteFile(damaged, []byte(mooncakeLines+"{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{"no such file", []string{"--requests", "1", "--mooncake", filepath.Join(dir, "missing")}, []string{"missing", "no such file"}},
		{"a damaged file", []string{"--requests", "1", "--mooncake", damaged}, []string{damaged, "line 3", "timestamp is missing"}},
		{"no requests", []string{"--requests", "0"}, []string{"Requests is 0"}},
		{"page of no tokens", []string{"--page-tokens", "0"}, []string{"--page-tokens is 0"}},
		{"no room", []string{"--room", "10,0"}, []string{"--room is 0, want more than 0 and at most 100"}},
		{"too much room", []string{"--room", "101"}, []string{"--room is 101"}},
		{"unknown policy", []string{"--requests", "1", "--policy", "oracle"}, []string{"oracle", "lru"}},
		{"two formats", []string{"--json", "--markdown"}, []string{"--json", "--markdown"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refused(t, tc.want, append([]string{"bench", "policies"}, tc.args...)...)
		})
	}
}
