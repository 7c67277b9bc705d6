package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestBenchSched(t *testing.T) {
	args := []string{"bench", "sched", "--rows", "16", "--queue", "20", "--policy", "hrrn", "--prompt-tokens", "64", "--output-tokens", "8", "--requests", "100", "--inflight", "2"}
	stdout, stderr, ok := command(t, append(args, "--json")...)
	if !ok || stderr != "" {
		t.Fatalf("ok %v: %s", ok, stderr)
	}
	var got map[string]float64
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"steps", "requests", "tokens", "next_ns_per_step_p50", "next_ns_per_step_p99", "complete_ns_per_row", "add_ns", "requests_per_s", "tokens_per_s"} {
		if got[key] <= 0 {
			t.Errorf("%s is %v", key, got[key])
		}
	}
	if got["requests"] < 100 || got["requests"] > 116 || len(got) != 11 {
		t.Errorf("printed %s", stdout)
	}
	stdout, stderr, ok = command(t, args...)
	if !ok || stderr != "" || !strings.Contains(stdout, "16 running and 20 waiting requests") || !strings.Contains(stdout, "under hrrn") {
		t.Errorf("ok %v, %s%s", ok, stderr, stdout)
	}
}

func TestBenchSchedBadInput(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--rows", "0"}, "--rows is 0"},
		{[]string{"--requests", "0"}, "--requests is 0"},
		{[]string{"--inflight=-1"}, "--inflight is -1"},
		{[]string{"--queue=-1"}, "--queue is -1"},
		{[]string{"--prompt-tokens", "1"}, "--prompt-tokens is 1"},
		{[]string{"--page-tokens", "24"}, "--page-tokens is 24"},
		{[]string{"--policy", "best"}, "best"},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			refused(t, []string{tc.want}, append([]string{"bench", "sched"}, tc.args...)...)
		})
	}
}
