package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/engine/model/random"
)

const hubCommit = "0123456789abcdef0123456789abcdef01234567"

// testHub starts a hub with one repository of the given files, and uses an empty cache.
func testHub(t *testing.T, repo string, files map[string][]byte) (url, home string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/models/"+repo+"/revision/main" {
			var siblings []any
			for path, data := range files {
				sum := sha256.Sum256(data)
				siblings = append(siblings, map[string]any{"rfilename": path, "size": len(data), "lfs": map[string]any{"sha256": hex.EncodeToString(sum[:]), "size": len(data)}})
			}
			json.NewEncoder(w).Encode(map[string]any{"sha": hubCommit, "siblings": siblings})
			return
		}
		data, ok := files[strings.TrimPrefix(r.URL.Path, "/"+repo+"/resolve/"+hubCommit+"/")]
		if !ok {
			w.Header().Set("X-Error-Code", "RepoNotFound")
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Write(data)
	}))
	t.Cleanup(s.Close)
	home = t.TempDir()
	t.Setenv("HF_ENDPOINT", s.URL)
	t.Setenv("HF_HOME", home)
	return s.URL, home
}

// ggufBytes returns a generated GGUF file.
func ggufBytes(t *testing.T, typ gguf.Type, seed uint64) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := random.GenerateGGUF(path, random.Spec{Preset: random.Nano, Seed: seed}, typ); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestPullAndRun pulls a model by its name, lists it, and runs it by the same name. The
// second time it sends no request to the hub.
func TestPullAndRun(t *testing.T) {
	url, home := testHub(t, "some/model-GGUF", map[string][]byte{"model-Q4_0.gguf": ggufBytes(t, gguf.Q4_0, 1), "model-Q8_0.gguf": ggufBytes(t, gguf.Q8_0, 1),
		"broken-Q2_K.gguf": []byte("GGUF\x03\x00\x00\x00 and so on"), "README.md": []byte("x")})
	if out, _, ok := command(t, "models"); !ok || !strings.Contains(out, "There are no models in "+filepath.Join(home, "hub")) {
		t.Errorf("an empty cache: %v %s", ok, out)
	}
	out, stderr, ok := command(t, "pull", "some/model-GGUF")
	if !ok || !strings.HasPrefix(out, "hf:some/model-GGUF:model-Q4_0.gguf: ") || !strings.Contains(stderr, "coppice chat --model hf:some/model-GGUF:model-Q4_0.gguf") {
		t.Fatalf("pull: %v %q %q", ok, out, stderr)
	}
	if _, stderr, ok = command(t, "pull", url+"/some/model-GGUF/blob/main/broken-Q2_K.gguf"); !ok || !strings.Contains(stderr, "can't be loaded") {
		t.Errorf("pull by address: %v %q", ok, stderr)
	}
	generate := []string{"generate", "--model", "hf:some/model-GGUF:Q8_0", "--max-tokens", "5", "x"}
	first, stderr, ok := command(t, generate...)
	if !ok || !strings.Contains(stderr, "pulling it") {
		t.Fatalf("generate: %v %q", ok, stderr)
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	if again, stderr, ok := command(t, generate...); !ok || again != first || strings.Contains(stderr, "pulling") {
		t.Errorf("generate from the cache: %v %q %q", ok, again, stderr)
	}
	refused(t, []string{"HF_HUB_OFFLINE"}, "generate", "--model", "hf:some/other", "x")
	out, _, ok = command(t, "models")
	for _, want := range []string{"hf:some/model-GGUF:model-Q4_0.gguf", "hf:some/model-GGUF:model-Q8_0.gguf", "llama", "Q8_0", "yes", "hf:some/model-GGUF:broken-Q2_K.gguf", "no: "} {
		if !ok || !strings.Contains(out, want) {
			t.Errorf("models: no %q in %s", want, out)
		}
	}
	out, _, ok = command(t, "models", "--json")
	var list struct{ Models []listedModel }
	if err := json.Unmarshal([]byte(out), &list); err != nil || !ok || len(list.Models) != 3 {
		t.Fatalf("models --json: %v %s", err, out)
	}
	if m := list.Models[1]; !m.Loads || m.Architecture != "llama" || m.Weights != "Q4_0" || m.Context == 0 || m.Parameters == 0 || m.Bytes == 0 {
		t.Errorf("%+v", m)
	}
}

// TestModelNames checks that errors about a bad --model name the right form.
func TestModelNames(t *testing.T) {
	testHub(t, "some/model", nil)
	refused(t, []string{"there is no file or directory some/model", "--model hf:some/model"}, "generate", "--model", "some/model", "x")
	refused(t, []string{"there is no file or directory some/model", "--model hf:some/model"}, "serve", "--addr", "127.0.0.1:0", "--model", "some/model")
	folder := t.TempDir()
	for _, command := range []string{"serve --addr 127.0.0.1:0", "chat"} {
		refused(t, []string{folder + " has neither config.json nor tokenizer.json", "hf:owner/name"}, append(strings.Fields(command), "--model", folder)...)
	}
	for _, name := range []string{"a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "b.gguf", "c.gguf", "d.gguf"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range []string{"serve --addr 127.0.0.1:0", "chat"} {
		refused(t, []string{"give one of its GGUF files: a-00001-of-00002.gguf, b.gguf, c.gguf, …\n"}, append(strings.Fields(command), "--model", folder)...)
	}
	refused(t, []string{"no reference to a model", "owner/name"}, "generate", "--model", "hf:model", "x")
	refused(t, []string{"no GGUF file"}, "generate", "--model", "hf:some/model", "x")
	refused(t, []string{"no such model"}, "pull", "some/other")
	refused(t, []string{"owner/name"}, "pull", "model")
	t.Setenv("HF_ENDPOINT", "nowhere")
	refused(t, []string{"Endpoint", "HF_ENDPOINT"}, "pull", "some/model")
}

// TestHubEnvironment checks that the cache is at the place that Hugging Face's tools use.
func TestHubEnvironment(t *testing.T) {
	for _, name := range []string{"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "HF_TOKEN", "HF_ENDPOINT"} {
		t.Setenv(name, "")
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	check := func(want string) {
		t.Helper()
		h, err := openHub()
		if err != nil || h.Dir() != want || h.Endpoint() != "https://huggingface.co" {
			t.Errorf("%v %v, want %s", h, err, want)
		}
	}
	check(filepath.Join(home, ".cache", "huggingface", "hub"))
	t.Setenv("XDG_CACHE_HOME", "/x")
	check("/x/huggingface/hub")
	t.Setenv("HF_HOME", "~/hf")
	check(filepath.Join(home, "hf", "hub"))
	t.Setenv("HUGGINGFACE_HUB_CACHE", "/old")
	check("/old")
	t.Setenv("HF_HUB_CACHE", "$HOME/new")
	check(filepath.Join(home, "new"))
}

func TestModelName(t *testing.T) {
	for path, want := range map[string]string{
		"/a/b/": "b", "/a/Some-Model.Q8_0.gguf": "Some-Model.Q8_0", "/c/hub/models--a--b-c/snapshots/" + hubCommit: "a/b-c",
		"/c/hub/models--a--b/snapshots/" + hubCommit + "/x-Q4_0.gguf": "x-Q4_0",
	} {
		if got := modelName(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
