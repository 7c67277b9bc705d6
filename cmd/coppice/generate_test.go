package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/scheduler"
)

// Several samples are printed in order. The first equals that of a run with one sample, with
// or without overlap of plans.
func TestGenerateSamples(t *testing.T) {
	dir := nano(t)
	args := func(more ...string) []string {
		return append([]string{"generate", "--model", dir, "--max-tokens", "20", "--temperature", "1", "--seed", "3", "What is light?"}, more...)
	}
	alone, _, ok := command(t, args()...)
	if !ok {
		t.Fatal(alone)
	}
	first, stderr, ok := command(t, args("--samples", "3", "--policy", "dlpm")...)
	if !ok || !strings.HasPrefix(first, "--- sample 1 of 3\n"+alone+"--- sample 2 of 3\n") ||
		strings.Count(first, "--- sample") != 3 || strings.Count(stderr, "20 output tokens") != 3 {
		t.Errorf("ok %v, printed %q and %q, alone %q", ok, first, stderr, alone)
	}
	if again, _, _ := command(t, args("--samples", "3", "--inflight", "2")...); again != first {
		t.Errorf("with overlap %q, without %q", again, first)
	}
	digest, _, _ := command(t, args("--digest")...)
	if !regexp.MustCompile(`\ndigest [0-9a-f]{16}\n$`).MatchString(digest) || !strings.HasPrefix(digest, alone) {
		t.Errorf("with --digest %q, without %q", digest, alone)
	}
	if other, _, _ := command(t, args("--digest", "--speculate", "8", "--page-tokens", "4")...); other != digest {
		t.Errorf("with drafts %q, without %q", other, digest)
	}
}

// A required output format is kept, even with random weights.
func TestGenerateShapes(t *testing.T) {
	t.Parallel()
	dir := nano(t)
	schema := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(schema, []byte(`{"type":"object","properties":{"n":{"type":"integer","minimum":3,"maximum":9}},"required":["n"],"additionalProperties":false}`), 0o600); err != nil {
		t.Fatal(err)
	}
	generate := func(more ...string) (stdout, stderr string) {
		t.Helper()
		stdout, stderr, ok := command(t, append([]string{"generate", "--model", dir, "--max-tokens", "60", "--temperature", "1", "--seed", "4", "What is light?"}, more...)...)
		if !ok {
			t.Fatal(stderr)
		}
		return stdout, stderr
	}
	if text, _ := generate("--regexp", "(red|green|blue)( [0-9]{1,3}){3}"); !regexp.MustCompile(`^(red|green|blue)( [0-9]{1,3}){3}\n$`).MatchString(text) {
		t.Errorf("--regexp: %q", text)
	}
	var answer struct{ N int }
	if text, stderr := generate("--json-schema", schema); json.Unmarshal([]byte(text), &answer) != nil || answer.N < 3 || answer.N > 9 || !strings.Contains(stderr, "ended by stop") {
		t.Errorf("--json-schema: %q, %s", text, stderr)
	}
	free, _ := generate("--regexp", "[a-z ]{40}")
	if text, stderr := generate("--regexp", "[a-z ]{40}", "--stop", free[20:23]); text != free[:strings.Index(free, free[20:23])]+"\n" || !strings.Contains(stderr, "the stop string") {
		t.Errorf("--stop: %q, %s", text, stderr)
	}
	if text, _ := generate("--json"); !strings.HasPrefix(text, "{") {
		t.Errorf("--json: %q", text)
	}
	plain, _ := generate("--min-tokens", "60")
	if chat, stderr := generate("--min-tokens", "60", "--system", "Be brief."); chat == plain || !strings.Contains(stderr, "60 output tokens") {
		t.Errorf("--system: %q, %s", chat, stderr)
	}
	refused(t, []string{"--json-schema", "/not"}, "generate", "--model", dir, "--json-schema", "/not/there", "x")
	refused(t, []string{"Format", "missing"}, "generate", "--model", dir, "--regexp", "(", "x")
	refused(t, []string{"2 of --json, --json-schema and --regexp"}, "generate", "--model", dir, "--regexp", "a", "--json", "x")
}

// A time limit that passes before any output is an error that names the limit.
func TestGenerateTimeout(t *testing.T) {
	refused(t, []string{"deadline passed"}, "generate", "--model", nano(t), "--timeout", "1ns", "--samples", "2", "What is light?")
}

func TestGenerateRefuses(t *testing.T) {
	dir := nano(t)
	for _, tc := range []struct {
		flag string
		want []string
	}{
		{"--samples=-3", []string{"--samples is -3, want at least 1"}},
		{"--samples=0", []string{"--samples is 0"}},
		{"--max-tokens=0", []string{"--max-tokens is 0, want at least 1"}},
		{"--samples=65", []string{"Samples is 65", "64"}},
		{"--timeout=-3s", []string{"Timeout is -3s"}},
		{"--timeout=soon", []string{"soon"}},
		{"--inflight=3", []string{"MaxInflight is 3", "1 to 2"}},
	} {
		t.Run(tc.flag, func(t *testing.T) { refused(t, tc.want, "generate", "--model", dir, tc.flag, "x") })
	}
}

// The help names every policy.
func TestPolicyFlag(t *testing.T) {
	help, _, ok := command(t, "generate", "--help")
	if !ok {
		t.Fatal(help)
	}
	help = strings.Join(strings.Fields(help), " ") // undoes the line breaks
	for _, p := range scheduler.Policies() {
		if !strings.Contains(help, p.String()) {
			t.Errorf("--help does not mention %v", p)
		}
	}
}

// TestKVType checks that keys and values of other types give an answer, the same with and
// without the cache, and that an unknown type, or one that does not fit the heads, is
// refused with advice.
func TestKVType(t *testing.T) {
	t.Parallel()
	table, stderr, ok := command(t, "bench", "chat", "--model", nano(t), "--requests", "6", "--kv-type", "bf16")
	if !ok || !strings.Contains(table, "identical") || strings.Contains(table, "false") {
		t.Errorf("%s\n%s", table, stderr)
	}
	refused(t, []string{"q8_0", "use f16 or bf16"}, "generate", "--model", nano(t), "--kv-type", "q8_0", "What is light?")
	if printed, _, ok := command(t, "serve", "--kv-type", "bf16", "--print-config"); !ok || !regexp.MustCompile(`kv-type +bf16 +flag`).MatchString(printed) {
		t.Errorf("--print-config says %s", printed)
	}
	for _, name := range []string{"f64", "fp8"} {
		refused(t, []string{name, "want f32, f16, bf16 or q8_0"}, "generate", "--kv-type", name, "What is light?")
	}
	refused(t, []string{"--kv-type is for --backend cpu"}, "serve", "--addr", "127.0.0.1:0", "--backend", "sim", "--kv-type", "f16")
}
