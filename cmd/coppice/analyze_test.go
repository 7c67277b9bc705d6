package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/bench"
)

func TestAnalyzeTrace(t *testing.T) {
	dir := t.TempDir()
	recorded, prefixes := filepath.Join(dir, "recorded.jsonl"), filepath.Join(dir, "fewshot.pfxt")
	if err := os.WriteFile(recorded, []byte(mooncakeLines), 0o600); err != nil {
		t.Fatal(err)
	}
	trace, err := bench.GenerateTrace(bench.TraceConfig{Kind: bench.TraceFewShot, Requests: 200, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(prefixes)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := trace.WriteTo(f); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{recorded: "Mooncake trace", prefixes: "prefix trace"} {
		stdout, stderr, ok := command(t, "analyze", "trace", file, "--json", "--workers", "4")
		var a bench.Analysis
		if !ok || stderr != "" || json.Unmarshal([]byte(stdout), &a) != nil || a.Form != want || a.Requests == 0 || len(a.Advice.Reasons) == 0 {
			t.Errorf("ok %v: %s%s", ok, stderr, stdout)
		}
		if stdout, _, ok = command(t, "analyze", "trace", file); !ok || !strings.Contains(stdout, "advice: weights 2025") {
			t.Errorf("ok %v: %s", ok, stdout)
		}
	}
	refused(t, []string{"missing", "no such file"}, "analyze", "trace", filepath.Join(dir, "missing"))
	refused(t, []string{"--block-tokens is -1"}, "analyze", "trace", recorded, "--block-tokens=-1")
	refused(t, []string{"--block-tokens is 0"}, "analyze", "trace", recorded, "--block-tokens", "0")
	refused(t, []string{"multiple of 512"}, "analyze", "trace", recorded, "--block-tokens", "16")
}
