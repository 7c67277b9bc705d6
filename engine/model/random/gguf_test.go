package random

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/gguf"
)

// An existing file is only overwritten if it was generated, too.
func TestGenerateGGUFOverwritesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.gguf")
	var ids []string
	for seed := range uint64(2) {
		if err := GenerateGGUF(path, Spec{Preset: Nano, Seed: seed}, gguf.Q8_0); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, open(t, path).ID())
	}
	if ids[0] == ids[1] {
		t.Error("another seed gave the same model")
	}
	other := filepath.Join(t.TempDir(), "other.gguf")
	for _, data := range [][]byte{[]byte("notes"), bytes.Replace(read(t, path), []byte(model.GeneratedBy), []byte("coppice, trained weight"), 1)} {
		if err := os.WriteFile(other, data, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := GenerateGGUF(other, Spec{Preset: Nano}, gguf.Q8_0); !errors.Is(err, ErrExists) {
			t.Errorf("error %v, want %v", err, ErrExists)
		}
		if !bytes.Equal(read(t, other), data) {
			t.Error("it was overwritten")
		}
	}
}
