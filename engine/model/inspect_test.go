package model

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/coppice-llm/coppice/engine/model/gguf"
)

// TestInspect describes a file and a directory, with the error of Open if it refuses them.
func TestInspect(t *testing.T) {
	path, m := generateGGUF(t, "nano", Llama, 1, gguf.Q8_0)
	s := Inspect(path)
	if s.Err != nil || s.Architecture != "llama" || s.Weights != "Q8_0" || s.Context != m.Config().MaxPositions ||
		s.KVValues != 2*m.Config().Layers*m.Config().KVHeads*m.Config().HeadDim || s.Parameters == 0 || s.Bytes == 0 || !s.Generated {
		t.Errorf("%+v", s)
	}
	dir := t.TempDir()
	if err := Generate(dir, "nano", Qwen3, 1); err != nil {
		t.Fatal(err)
	}
	if s := Inspect(dir); s.Err != nil || s.Architecture != "qwen3" || s.Weights != "bf16" || s.Context == 0 || !s.Generated {
		t.Errorf("%+v", s)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"model_type":"mamba","architectures":["MambaForCausalLM"]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if s := Inspect(dir); !errors.Is(s.Err, ErrUnsupported) || s.Architecture != "mamba" || s.Weights != "bf16" {
		t.Errorf("%+v", s)
	}
	strange := filepath.Join(t.TempDir(), "x.gguf")
	if err := os.WriteFile(strange, rewriteGGUF(t, path, set(pairsOf(t, path), "general.architecture", "mamba"), nil), 0o644); err != nil {
		t.Fatal(err)
	}
	if s := Inspect(strange); !errors.Is(s.Err, ErrUnsupported) || s.Architecture != "mamba" || s.Weights != "Q8_0" {
		t.Errorf("%+v", s)
	}
	if s := Inspect(filepath.Join(dir, "none")); !errors.Is(s.Err, fs.ErrNotExist) {
		t.Errorf("%+v", s)
	}
}
