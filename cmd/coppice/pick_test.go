package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/cmd/internal/hub"
	"github.com/coppice-llm/coppice/engine/model/gguf"
)

// TestPickModel checks that the newest model is chosen that loads and leaves half the memory.
func TestPickModel(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, data []byte, age time.Duration) *hub.Model {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return &hub.Model{Path: path, Bytes: int64(len(data)), Modified: time.Unix(1e9, 0).Add(-age)}
	}
	broken, large, small := put("broken.gguf", []byte("GGUF and so on"), 0), put("large.gguf", ggufBytes(t, gguf.F32, 1), 1), put("small.gguf", ggufBytes(t, gguf.Q4_0, 1), 2)
	all := func() []*hub.Model { return []*hub.Model{small, broken, large} }
	for _, tc := range []struct {
		memory int64
		want   *hub.Model
	}{{0, large}, {2 * large.Bytes, large}, {2*large.Bytes - 1, small}, {2 * small.Bytes, small}, {2*small.Bytes - 1, nil}} {
		if got := pickModel(all(), tc.memory); got != tc.want {
			t.Errorf("%d bytes of memory: %v, want %v", tc.memory, got, tc.want)
		}
	}
	if n := memoryBytes(); n < 0 || n > 0 && n < 1<<20 {
		t.Errorf("%d bytes of memory", n)
	}
}
