package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/model"
)

// TestMakeModelArch writes a model of each family, checks its description, and generates.
func TestMakeModelArch(t *testing.T) {
	t.Parallel()
	for arch, want := range map[string]string{
		"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
	} {
		dir := filepath.Join(t.TempDir(), arch)
		if _, stderr, ok := command(t, "make-model", dir, "--arch", arch, "--preset", "nano"); !ok || !strings.Contains(stderr, want) {
			t.Fatalf("%s: ok %v: %s", arch, ok, stderr)
		}
		m, err := model.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Config().Architecture; got != want {
			t.Errorf("%s: architecture %s, want %s", arch, got, want)
		}
		m.Close()
		if out, stderr, ok := command(t, "generate", "--model", dir, "--max-tokens", "8", "What is light?"); !ok || out == "" {
			t.Errorf("%s: ok %v, printed %q and %q", arch, ok, out, stderr)
		}
	}
	dir := filepath.Join(t.TempDir(), "gemma")
	if _, stderr, ok := command(t, "make-model", dir, "--arch", "gemma"); ok || !strings.Contains(stderr, "llama, mistral, qwen2 or qwen3") {
		t.Errorf("unknown arch: ok %v: %s", ok, stderr)
	}
}
