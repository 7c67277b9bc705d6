package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/bench"
)

// radixJSON runs the command and returns its figures, without the measured ones.
func radixJSON(t *testing.T, args ...string) map[string]any {
	t.Helper()
	stdout, stderr, ok := command(t, append([]string{"bench", "radix", "--json", "--passes", "1"}, args...)...)
	if !ok || stderr != "" {
		t.Fatalf("%v: ok %v: %s", args, ok, stderr)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 20 {
		t.Errorf("%d keys in %s", len(got), stdout)
	}
	for key := range got {
		if strings.Contains(key, "_ns_") || strings.Contains(key, "bytes") || key == "match_over_memcmp" {
			delete(got, key)
		}
	}
	return got
}

func TestBenchRadixJSON(t *testing.T) {
	args := []string{"--kind", "fewshot", "--requests", "60", "--seed", "3", "--page-tokens", "64"}
	got := radixJSON(t, args...)
	if got["requests"] != 60.0 || got["leaves"] != 60.0 || got["evict_calls"] != 0.0 || got["hit_rate"].(float64) < 0.7 || got["hit_rate"].(float64) > got["ideal_hit_rate"].(float64) {
		t.Errorf("printed %v", got)
	}
	if fnv, ok := got["matched_fnv"].(string); !ok || len(fnv) != 16 {
		t.Errorf("matched_fnv is %v", got["matched_fnv"])
	}

	// The same trace from a file gives the same figures.
	trace, err := bench.GenerateTrace(bench.TraceConfig{Kind: bench.TraceFewShot, Requests: 60, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "trace")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trace.WriteTo(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	read := radixJSON(t, "--trace", path, "--page-tokens", "64")
	for key, want := range got {
		if read[key] != want {
			t.Errorf("%s is %v generated, %v read", key, want, read[key])
		}
	}

	limited := radixJSON(t, append(args, "--capacity-tokens", "5000", "--block-tokens", "128")...)
	if limited["cached_tokens"].(float64) > 5000 || limited["evicted_tokens"] == 0.0 || limited["evict_calls"] == 0.0 {
		t.Errorf("room for 5000 tokens: %v", limited)
	}
}

func TestBenchRadixTable(t *testing.T) {
	stdout, stderr, ok := command(t, "bench", "radix", "--requests", "30", "--passes", "1", "--capacity-tokens", "20000")
	if !ok || stderr != "" {
		t.Fatalf("ok %v: %s", ok, stderr)
	}
	for _, want := range []string{"generated trace chat, seed 7", "pages of 16 tokens", "room for 20000 tokens", "ideal hit rate", "match over memcmp"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

func TestBenchRadixBadInput(t *testing.T) {
	dir := t.TempDir()
	damaged := filepath.Join(dir, "damaged")
	if err := os.WriteFile(damaged, []byte("PFXT\x01\x00\x00\x00\x02\x00\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, []byte("PFXT\x01\x00\x00\x00\x00\x00\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{"no such trace", []string{"--trace", filepath.Join(dir, "missing")}, []string{"missing", "no such file"}},
		{"a directory", []string{"--trace", dir}, []string{dir}},
		{"a damaged trace", []string{"--trace", damaged}, []string{damaged, "truncated", "byte 12", "request 0 of 2"}},
		{"an empty trace", []string{"--trace", empty}, []string{"no requests"}},
		{"trace and kind", []string{"--trace", damaged, "--kind", "chat"}, []string{"--trace", "--kind"}},
		{"trace and seed", []string{"--trace", damaged, "--seed", "7"}, []string{"--trace", "--seed"}},
		{"unknown kind", []string{"--kind", "best"}, []string{"best", "fewshot"}},
		{"no requests", []string{"--requests", "0"}, []string{"--requests is 0"}},
		{"page of no tokens", []string{"--page-tokens", "0"}, []string{"--page-tokens is 0"}},
		{"bad page size", []string{"--requests", "1", "--page-tokens=-3"}, []string{"-3"}},
		{"bad block size", []string{"--requests", "1", "--block-tokens", "24"}, []string{"BlockTokens is 24"}},
		{"negative capacity", []string{"--requests", "1", "--capacity-tokens=-1"}, []string{"--capacity-tokens is -1"}},
		{"no room for a request", []string{"--requests", "1", "--capacity-tokens", "64"}, []string{"CapacityTokens is 64", "raise it to"}},
		{"no passes", []string{"--requests", "1", "--passes", "0"}, []string{"--passes is 0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refused(t, tc.want, append([]string{"bench", "radix"}, tc.args...)...)
		})
	}
}

func TestBenchRadixHelp(t *testing.T) {
	stdout, _, ok := command(t, "bench", "radix", "--help")
	if !ok || !strings.Contains(stdout, "Usage: coppice bench radix") || !strings.Contains(stdout, "coppice bench radix --kind tree") {
		t.Errorf("ok %v, %q", ok, stdout)
	}
}
