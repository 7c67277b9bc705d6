package main

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

var ggufTypes = flag.Bool("gguf-types", false, "TestGGUF: files of all types")

// TestGGUF writes files, of two types or with -gguf-types of all, generates by their chat template, and compares the text
// with that of a model directory with the same weights. Packages model and cpu test all types.
func TestGGUF(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	generate := func(path string) string {
		t.Helper()
		out, stderr, ok := command(t, "generate", "--model", path, "--chat", "--temperature", "0", "--max-tokens", "8", "What is light?")
		if !ok {
			t.Fatalf("%s: %s", path, stderr)
		}
		return out
	}
	plain := filepath.Join(dir, "mini")
	if _, stderr, ok := command(t, "make-model", plain, "--preset", "mini"); !ok {
		t.Fatal(stderr)
	}
	want := generate(plain)
	types := []gguf.Type{gguf.BF16, gguf.Q4_K}
	if *ggufTypes {
		types = gguf.Types()
	}
	for _, typ := range types {
		path := filepath.Join(dir, typ.String()+".gguf")
		if _, stderr, ok := command(t, "make-model", path, "--preset", "mini", "--gguf", typ.String()); !ok || !strings.Contains(stderr, "LlamaForCausalLM") {
			t.Fatalf("%v: %s", typ, stderr)
		}
		if got := generate(path); typ == gguf.BF16 && got != want {
			t.Errorf("the file's text is %q, the directory's %q", got, want)
		}
	}
	if _, stderr, ok := command(t, "make-model", filepath.Join(dir, "x.gguf"), "--gguf", "Q2_K"); ok || !strings.Contains(stderr, "Q4_K") {
		t.Errorf("Q2_K: ok %v: %s", ok, stderr)
	}
	out, stderr, ok := command(t, "bench", "engine", "--model", filepath.Join(dir, "Q4_K.gguf"), "--prompt-tokens", "8", "--output-tokens", "2", "--json")
	if !ok || !strings.HasPrefix(out, "{") {
		t.Errorf("bench engine: %q %s", out, stderr)
	}
}

// TestServeGGUF checks that a served file is named after the file, and gives routers the
// tokenizer and the template of its metadata.
func TestServeGGUF(t *testing.T) {
	path := filepath.Join(t.TempDir(), "Some-Model.Q8_0.gguf")
	if _, stderr, ok := command(t, "make-model", path, "--preset", "nano", "--gguf", "Q8_0"); !ok {
		t.Fatal(stderr)
	}
	c := &serveCmd{Backend: "cpu"}
	c.KVTokens, c.PageTokens, c.StepTokens, c.Inflight, c.MaxRunning, c.MaxRequests = 1024, 16, 128, 1, 4, 8
	c.Publish, c.BlockTokens = []string{"zmq://127.0.0.1:0"}, 16
	s, err := c.open(path, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer s.node.Close()
	if s.names[0] != "Some-Model.Q8_0" || s.node.Template() == nil || s.bundle == nil || time.Since(s.created) > time.Hour {
		t.Fatalf("%+v", s)
	}
	dir := t.TempDir()
	if err := s.bundle.Unpack(dir); err != nil {
		t.Fatal(err)
	}
	template, err := chat.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	messages := []chat.Message{{Role: "user", Content: "What is light?"}}
	got, err := template.Render(messages, chat.Options{AddGenerationPrompt: true})
	if err != nil {
		t.Fatal(err)
	}
	if want, _ := s.node.Template().Render(messages, chat.Options{AddGenerationPrompt: true}); got != want || !strings.Contains(got, "<|begin_of_text|>") {
		t.Errorf("the bundle's template renders %q, the worker's %q", got, want)
	}
	tok, err := local.Tokenizer(path)
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := local.Tokenizer(dir)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := tok.EncodePrompt(nil, got), unpacked.EncodePrompt(nil, got); len(a) == 0 || len(a) != len(b) {
		t.Errorf("tokens %v and %v", a, b)
	}
}

// TestGGUFOfARealModel checks a few answers of SmolLM2 with 4 bits a weight.
func TestGGUFOfARealModel(t *testing.T) {
	dir := os.Getenv("COPPICE_TOKENIZERS")
	if dir == "" {
		t.Skip("COPPICE_TOKENIZERS names no directory; tools/tokenizers/install.py fills one")
	}
	path := filepath.Join(dir, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s is not there; run tools/tokenizers/install.py again", path)
	}
	for _, tc := range []struct{ prompt, chat, want, bill string }{
		{"The capital of France is", "", " Paris", "5 prompt"},
		{"What is 2 + 2?", "--chat", "The answer is 4.\n", "38 prompt"}, // with the template's system message
	} {
		args := []string{"generate", "--model", path, "--temperature", "0", "--max-tokens", "20", "--kv-tokens", "1024", tc.prompt}
		if tc.chat != "" {
			args = append(args, tc.chat)
		}
		out, stderr, ok := command(t, args...)
		if !ok || !strings.HasPrefix(out, tc.want) || !strings.Contains(stderr, tc.bill) {
			t.Errorf("%q: ok %v: %q, want %q; %s", tc.prompt, ok, out, tc.want, stderr)
		}
	}
}
