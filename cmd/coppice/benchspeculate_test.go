package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/bench/speculate"
)

func TestBenchSpeculate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "own.jsonl")
	if err := os.WriteFile(file, []byte(`{"name":"own","prompt":"Light is","output":" a body and light is a wave and light is a body"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"bench", "speculate", "--loads", "calls," + file, "--tasks", "1", "--output-tokens", "24", "--runs", "1", "--speculate", "4"}
	stdout, stderr, ok := command(t, append(args, "--json")...)
	if !ok || stderr != "" {
		t.Fatalf("ok %v: %s", ok, stderr)
	}
	var got speculate.Table
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Load != "calls" || got[1].Load != file {
		t.Fatalf("%s", stdout)
	}
	for _, c := range got {
		if c.Tasks != 1 || c.OutputTokens < 12 || c.Ratio <= 0 || len(c.Digest) != 16 || !c.Identical || c.Off.Steps < 12 || c.On.Steps == 0 || c.Off.Sources != nil {
			t.Errorf("%+v", c)
		}
	}
	stdout, stderr, ok = command(t, append(args, "--free", "--markdown")...)
	if !ok || stderr != "" || !strings.Contains(stdout, "| calls | 1 | 24 |") {
		t.Errorf("ok %v, %s%s", ok, stderr, stdout)
	}
	refused(t, []string{"--loads", "no load", "rewrite"}, "bench", "speculate", "--loads", "rewriting")
	refused(t, []string{"--speculate", "auto, off"}, "bench", "speculate", "--speculate", "some")
	refused(t, []string{"--runs is 0"}, "bench", "speculate", "--runs", "0")
}
