package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/bench"
)

// indexJSON runs the command and returns its figures, without the measured ones.
func indexJSON(t *testing.T, args ...string) map[string]float64 {
	t.Helper()
	stdout, stderr, ok := command(t, append([]string{"bench", "index", "--json", "--passes", "1"}, args...)...)
	if !ok || stderr != "" {
		t.Fatalf("%v: ok %v: %s", args, ok, stderr)
	}
	var got map[string]float64
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 12 {
		t.Errorf("%d keys in %s", len(got), stdout)
	}
	for key := range got {
		if strings.Contains(key, "_ns_") || strings.Contains(key, "bytes") || key == "blocks_per_s" {
			delete(got, key)
		}
	}
	return got
}

func TestBenchIndexJSON(t *testing.T) {
	got := indexJSON(t, "--kind", "tree", "--requests", "80", "--seed", "3", "--block-tokens", "32")
	if got["requests"] != 80 || got["blocks"] != got["own_overlap_blocks"]+got["stored_blocks"] || got["best_overlap_blocks"] <= got["own_overlap_blocks"] || got["store_events"] == 0 {
		t.Errorf("printed %v", got)
	}
	// The same trace from a file gives the same sums, on every index and with many threads.
	trace, err := bench.GenerateTrace(bench.TraceConfig{Kind: bench.TraceTree, Requests: 80, Seed: 3})
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
	for _, args := range [][]string{{}, {"--threads", "2"}, {"--index", "sharded"}, {"--index", "sharded", "--threads", "3", "--shards", "2"}} {
		read := indexJSON(t, append([]string{"--trace", path, "--block-tokens", "32"}, args...)...)
		for key, want := range got {
			if read[key] != want {
				t.Errorf("%v: %s is %v, want %v", args, key, read[key], want)
			}
		}
	}
	if other := indexJSON(t, "--trace", path, "--block-tokens", "32", "--workers", "2"); other["own_overlap_blocks"] <= got["own_overlap_blocks"] {
		t.Errorf("fewer workers find %v of their own, more %v", other, got)
	}
}

func TestBenchIndexTable(t *testing.T) {
	stdout, stderr, ok := command(t, "bench", "index", "--requests", "30", "--passes", "1", "--index", "sharded", "--threads", "2")
	if !ok || stderr != "" {
		t.Fatalf("ok %v: %s", ok, stderr)
	}
	for _, want := range []string{"generated trace chat, seed 7", "blocks of 16 tokens", "8 workers", "sharded index", "threads: 2", "find, median"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

func TestBenchIndexBadInput(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{"no such trace", []string{"--trace", filepath.Join(t.TempDir(), "missing")}, []string{"missing", "no such file"}},
		{"trace and kind", []string{"--trace", "x", "--kind", "chat"}, []string{"--trace", "--kind"}},
		{"unknown index", []string{"--index", "best"}, []string{"best", "radix or sharded"}},
		{"no threads", []string{"--threads", "0"}, []string{"--threads is 0"}},
		{"no workers", []string{"--workers", "0"}, []string{"--workers is 0"}},
		{"no passes", []string{"--passes", "0"}, []string{"--passes is 0"}},
		{"no shards", []string{"--shards", "0"}, []string{"--shards is 0"}},
		{"too many shards", []string{"--index", "sharded", "--requests", "1", "--shards", "1000"}, []string{"Shards is 1000"}},
		{"block of no tokens", []string{"--block-tokens", "0"}, []string{"--block-tokens is 0"}},
		{"negative block", []string{"--block-tokens=-3"}, []string{"-3"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refused(t, tc.want, append([]string{"bench", "index"}, tc.args...)...)
		})
	}
}
