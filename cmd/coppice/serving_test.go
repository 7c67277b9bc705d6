package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/bench"
)

func TestBenchServing(t *testing.T) {
	args := []string{"bench", "serving", "--requests", "60", "--kv-tokens", "20000", "--loads", "fewshot,tenants", "--levels", "low,150", "--policies", "fcfs,lpm:aging=8:oldest-every=3"}
	stdout, stderr, ok := command(t, append(args, "--json")...)
	if !ok || stderr != "" {
		t.Fatalf("ok %v: %s", ok, stderr)
	}
	var got bench.ServingTable
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if got.Profile != "h200" || got.Requests != 60 || got.StepTokens != 2048 || len(got.Loads) != 2 || got.Loads[1].Load != "tenants" {
		t.Fatalf("printed %s", stdout)
	}
	for _, l := range got.Loads {
		if len(l.Levels) != 2 || l.Levels[1].Level != "150 %" || len(l.Levels[1].Results) != 2 || l.Levels[1].Results[1].Policy != "lpm:aging=8:oldest-every=3" || l.Levels[0].Results[0].Requests != 60 {
			t.Errorf("%+v", l)
		}
	}
	for flag, want := range map[string]string{"": "load level policy", "--markdown": "| load | level | policy |"} {
		all := args
		if flag != "" {
			all = append(all[:len(all):len(all)], flag)
		}
		stdout, stderr, ok := command(t, all...)
		if !ok || stderr != "" || !strings.Contains(strings.Join(strings.Fields(stdout), " "), want) || !strings.Contains(stdout, "fewshot: room for 20000 tokens") {
			t.Errorf("%q: ok %v, %s%s", flag, ok, stderr, stdout)
		}
	}
}

func TestBenchServingBadInput(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"--requests", "0"}, []string{"--requests is 0"}},
		{[]string{"--step-tokens", "0"}, []string{"--step-tokens is 0"}},
		{[]string{"--inflight", "0"}, []string{"--inflight is 0"}},
		{[]string{"--loads", "storm"}, []string{"storm", "fewshot"}},
		{[]string{"--levels", "high"}, []string{"high", "saturating"}},
		{[]string{"--levels", "0"}, []string{`"0"`, "percent"}},
		{[]string{"--policies", "best"}, []string{"best", "fcfs"}},
		{[]string{"--policies", "lpm:ageing=3"}, []string{"ageing=3", "oldest-every"}},
		{[]string{"--policies", "lpm:aging=0"}, []string{"aging=0"}},
		{[]string{"--policies", "lpm:aging=-3", "--requests", "5"}, []string{"Aging is -3"}},
		{[]string{"--profile", "abacus"}, []string{"abacus", "h200"}},
		{[]string{"--page-tokens", "24", "--requests", "5"}, []string{"PageTokens is 24"}},
		{[]string{"--kv-tokens=-5"}, []string{"--kv-tokens is -5"}},
		{[]string{"--kv-tokens", "0"}, []string{"--kv-tokens is 0"}},
		{[]string{"--kv-tokens", "500", "--requests", "5"}, []string{"larger than the KV pool"}},
		{[]string{"--json", "--markdown"}, []string{"--json", "--markdown"}},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			refused(t, tc.want, append([]string{"bench", "serving"}, tc.args...)...)
		})
	}
}
