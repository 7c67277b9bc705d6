package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestBenchEngine(t *testing.T) {
	t.Parallel()
	args := []string{"bench", "engine", "--preset", "nano", "--prompt-tokens", "64", "--output-tokens", "4", "--threads", "1"}
	stdout, stderr, ok := command(t, append(args, "--json")...)
	var got map[string]any
	if err := json.Unmarshal([]byte(stdout), &got); !ok || err != nil {
		t.Fatalf("ok %v, %v: %s", ok, err, stderr)
	}
	for _, key := range []string{"prefill_tok_s", "decode_tok_s_b1", "decode_tok_s_b4", "decode_tok_s_b16", "gemm_gflops", "ceiling_gflops", "stream_gbs", "ceiling_gbs", "threads"} {
		if v, _ := got[key].(float64); v <= 0 {
			t.Errorf("%s is %v", key, got[key])
		}
	}
	if got["isa"] == "" || len(got) != 10 {
		t.Errorf("printed %s", stdout)
	}
	for _, bad := range [][]string{{"--prompt-tokens", "0"}, {"--output-tokens=-1"}, {"--threads=-1"}, {"--preset", "huge"}, {"--model", "/nowhere"}} {
		if _, stderr, ok := command(t, append([]string{"bench", "engine", "--preset", "nano"}, bad...)...); ok || !strings.Contains(stderr, "coppice: ") {
			t.Errorf("%v: ok %v, %s", bad, ok, stderr)
		}
	}
}
