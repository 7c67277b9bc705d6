package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cpu"
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

// TestBenchEngineReport measures two types of weights on all paths with kernels, and a file on one.
func TestBenchEngineReport(t *testing.T) {
	t.Parallel()
	args := []string{"bench", "engine", "--report", "--prompt-tokens", "8", "--output-tokens", "2", "--threads", "1"}
	generated := append(args, "--preset", "mini", "--weights", "Q4_K,BF16")
	paths := cpu.ISAs()
	if forced := os.Getenv(cpu.ISAVariable); forced != "" {
		paths = []cpu.ISA{cpu.ISA(forced)}
	} else if len(paths) > 1 {
		paths = paths[1:]
	}
	var got engineReport
	stdout, stderr, ok := command(t, append(generated, "--json")...)
	if err := json.Unmarshal([]byte(stdout), &got); !ok || err != nil {
		t.Fatalf("ok %v, %v: %s", ok, err, stderr)
	}
	if got.Build.Go != runtime.Version() || got.Machine.Threads != 1 || got.Machine.System == "" || got.Load != (engineLoad{8, 2, "f32"}) || len(got.Paths) != len(cpu.ISAs()) {
		t.Errorf("%+v", got)
	}
	for _, p := range got.Paths {
		if measured := slices.Contains(paths, p.Path); p.Fault != "" || measured != (p.CeilingGFlops > 0) || measured != (p.CeilingGBs > 0) {
			t.Errorf("%+v", p)
		}
	}
	var measured []string
	for _, r := range got.Rates {
		measured = append(measured, r.Weights+" "+r.Path)
		if r.PrefillTokS <= 0 || r.DecodeTokS1 <= 0 || r.DecodeTokS4 <= 0 || r.DecodeTokS16 <= 0 || r.GemmGFlops <= 0 || r.StreamGBs <= 0 {
			t.Errorf("%+v", r)
		}
	}
	var want []string
	for _, w := range []string{"Q4_K", "BF16"} {
		want = append(want, texts(paths, func(isa cpu.ISA) string { return w + " " + isa.String() })...)
	}
	if fmt.Sprint(measured) != fmt.Sprint(want) {
		t.Errorf("measured %q, want %q", measured, want)
	}

	file := filepath.Join(t.TempDir(), "m.gguf")
	if _, stderr, ok := command(t, "make-model", file, "--preset", "nano", "--gguf", "Q8_0"); !ok {
		t.Fatal(stderr)
	}
	cmd := exec.Command(os.Args[0], append(args, "--model", file)...)
	last := paths[len(paths)-1]
	cmd.Env = append(os.Environ(), "COPPICE_TEST_MAIN=1", cpu.ISAVariable+"="+last.String())
	text, err := cmd.Output()
	for _, part := range []string{"version    coppice devel", "features   ", "self-test  portable: the kernels give the right bits", "memory     ", "limits     " + last.String(), "Q8_0", "batch 16", " 1 compute thread ", "Tokens per second of " + file + ", 1 thread:"} {
		if err != nil || !strings.Contains(string(text), part) {
			t.Errorf("%v, no %q in %s", err, part, text)
		}
	}
	if n := strings.Count(string(text), "\nlimits "); n != 1 {
		t.Errorf("limits of %d paths, want those of %s", n, last)
	}
	for _, bad := range [][]string{append(args, "--model", file, "--weights", "Q4_0"), {"bench", "engine", "--weights", "Q4_0"}, append(args, "--weights", "Q2_K"), append(args, "--model", "/nowhere")} {
		if stdout, stderr, ok := command(t, bad...); ok || !strings.Contains(stderr, "coppice: ") {
			t.Errorf("%v: ok %v, %s%s", bad, ok, stdout, stderr)
		}
	}
}

// A report measures what can be measured: neither a path that computes wrongly, nor portable Go beside kernels.
func TestMeasuredPaths(t *testing.T) {
	wrong := errors.New("wrong")
	for _, tc := range []struct {
		f    cpuFacts
		want string
	}{
		{cpuFacts{ISAs: []cpu.ISA{cpu.Portable}, Tests: []error{nil}}, "[portable]"},
		{cpuFacts{ISAs: []cpu.ISA{cpu.Portable, cpu.NEON, cpu.NEONDot}, Tests: []error{nil, nil, nil}}, "[neon neondot]"},
		{cpuFacts{ISAs: []cpu.ISA{cpu.Portable, cpu.NEON, cpu.NEONDot}, Tests: []error{nil, nil, wrong}}, "[neon]"},
		{cpuFacts{ISAs: []cpu.ISA{cpu.Portable, cpu.NEON}, Tests: []error{nil, wrong}}, "[portable]"},
		{cpuFacts{ISAs: []cpu.ISA{cpu.Portable, cpu.NEON}, Tests: []error{nil, nil}, Forced: "portable"}, "[portable]"},
		{cpuFacts{ISAs: []cpu.ISA{cpu.Portable, cpu.NEON}, Tests: []error{nil, wrong}, Forced: "neon"}, "[]"},
		{cpuFacts{ISAs: []cpu.ISA{cpu.Portable, cpu.NEON}, Tests: []error{nil, nil}, Forced: "avx9"}, "[]"},
	} {
		got, err := tc.f.measured()
		if fmt.Sprint(got) != tc.want || (err != nil) != (len(got) == 0) {
			t.Errorf("%+v: %v, %v", tc.f, got, err)
		}
	}
}
