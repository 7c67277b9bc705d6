package main

import (
	"encoding/json"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestEnvironment checks that a variable sets a flag of a command without settings, that the command line goes before
// it, and that a bad value is refused.
func TestEnvironment(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m")
	t.Setenv("COPPICE_PRESET", "nano")
	t.Setenv("COPPICE_ARCH", "qwen2")
	if _, stderr, ok := command(t, "make-model", dir); !ok || !strings.Contains(stderr, "Qwen2ForCausalLM") {
		t.Errorf("ok %v: %s", ok, stderr)
	}
	if _, stderr, ok := command(t, "make-model", dir+"2", "--arch", "llama"); !ok || !strings.Contains(stderr, "LlamaForCausalLM") {
		t.Errorf("with a flag: ok %v: %s", ok, stderr)
	}
	t.Setenv("COPPICE_PRESET", "huge")
	refused(t, []string{"huge", "nano"}, "make-model", dir+"3")
}

// TestNearestSetting checks that a mistyped setting gets the name that it is nearest to, and one like none does not.
func TestNearestSetting(t *testing.T) {
	names := []string{"addr", "kv-tokens", "kv-type", "policy", "max-running"}
	for name, want := range map[string]string{"adr": "addr", "kv-token": "kv-tokens", "polizy": "policy", "max-runing": "max-running", "elephant": "", "": ""} {
		if got := nearest(name, names); got != want {
			t.Errorf("%q: nearest is %q, want %q", name, got, want)
		}
	}
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"abc", "abc", 0}, {"flaw", "lawn", 2}} {
		if got := edits(tc.a, tc.b); got != tc.want {
			t.Errorf("edits(%q, %q) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
		if got := edits(tc.b, tc.a); got != tc.want {
			t.Errorf("edits(%q, %q) = %d, want %d", tc.b, tc.a, got, tc.want)
		}
	}
}

// TestVersion checks what coppice version says of a build.
func TestVersion(t *testing.T) {
	t.Setenv("COPPICE_CPU", "portable")
	out, _, ok := command(t, "version", "--json")
	var b build
	if err := json.Unmarshal([]byte(out), &b); err != nil || !ok || b.CPU != "portable" || b.Go != runtime.Version() || b.Target != runtime.GOOS+"/"+runtime.GOARCH || b.Version == "" {
		t.Errorf("ok %v: %s, %v", ok, out, err)
	}
	if text, _, _ := command(t, "version"); !strings.HasPrefix(text, "coppice "+b.Version+"\ncommit  ") || !strings.Contains(text, "\ncpu     portable\n") {
		t.Errorf("printed %q", text)
	}
}
