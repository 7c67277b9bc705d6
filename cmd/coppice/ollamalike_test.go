package main

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/model/gguf"
)

// TestRunAndRemove takes the commands of Ollama's users in their order: run a model by its name, which downloads
// it, list it and remove it.
func TestRunAndRemove(t *testing.T) {
	_, home := testHub(t, "some/model-GGUF", map[string][]byte{"model-Q4_0.gguf": ggufBytes(t, gguf.Q4_0, 1), "model-Q8_0.gguf": ggufBytes(t, gguf.Q8_0, 1)})
	run := []string{"run", "hf.co/some/model-GGUF:Q8_0", "--max-tokens", "4", "What is", "light?"}
	first, stderr, ok := command(t, run...)
	if !ok || first == "" || !strings.Contains(stderr, "pulling it") {
		t.Fatalf("run: ok %v, printed %q and %q", ok, first, stderr)
	}
	run[1] = "some/model-GGUF:Q8_0"
	if again, stderr, ok := command(t, run...); !ok || again != first || strings.Contains(stderr, "pulling") {
		t.Errorf("run again: ok %v, printed %q and %q, want %q", ok, again, stderr, first)
	}
	if _, stderr, ok := command(t, "pull", "some/model-GGUF:Q4_0"); !ok {
		t.Fatal(stderr)
	}
	for _, name := range []string{"list", "ls"} {
		if out, _, ok := command(t, name); !ok || !strings.Contains(out, "hf:some/model-GGUF:model-Q8_0.gguf") {
			t.Errorf("%s: ok %v, %q", name, ok, out)
		}
	}
	if out, _, ok := command(t, "rm", "some/model-GGUF:Q8_0"); !ok || !strings.HasPrefix(out, "removed hf:some/model-GGUF:Q8_0: ") {
		t.Errorf("rm: ok %v, %q", ok, out)
	}
	if out, _, _ := command(t, "list"); strings.Contains(out, "Q8_0") || !strings.Contains(out, "Q4_0") {
		t.Errorf("after rm: %s", out)
	}
	refused(t, []string{"is not in", "Q8_0", "coppice list names"}, "rm", "some/model-GGUF:Q8_0")
	if out, stderr, ok := command(t, "rm", "hf:some/model-GGUF:model-Q4_0.gguf"); !ok {
		t.Errorf("rm: %q %q", out, stderr)
	}
	files := 0
	filepath.WalkDir(filepath.Join(home, "hub", "models--some--model-GGUF"), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files++
		}
		return nil
	})
	if files > 0 {
		t.Errorf("%d files are left", files)
	}
	refused(t, []string{"argument"}, "run", "some/model-GGUF", "--model", "x", "hello")
	refused(t, []string{"not the name of a model"}, "rm", home)
}

// TestPs checks that coppice ps prints what a server says of its models.
func TestPs(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/ps" || r.Header.Get("Authorization") != "Bearer k" {
			t.Errorf("asked %s with %q", r.URL, r.Header)
		}
		w.Write([]byte(`{"models":[{"name":"m:latest","size":2500000,"details":{"family":"llama","quantization_level":"Q8_0"},"context_length":4096}]}`))
	}))
	defer s.Close()
	t.Setenv("COPPICE_URL", s.URL) // as every flag
	out, stderr, ok := command(t, "ps", "--api-key", "k")
	if !ok || strings.Join(strings.Fields(out), " ") != "NAME SIZE ARCHITECTURE WEIGHTS CONTEXT m:latest 2.5 MB llama Q8_0 4096" {
		t.Errorf("ok %v: %q %q", ok, out, stderr)
	}
}
