package model

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/model/gguf"
)

// writeTexts writes files, by path within dir.
func writeTexts(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadPooling reads the pooling of directories as sentence-transformers writes them.
func TestReadPooling(t *testing.T) {
	const modules = `[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},
		{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"},
		{"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}]`
	for _, tc := range []struct{ modules, pooling, want, fault string }{
		{"", "", "", ""},
		{modules, `{"word_embedding_dimension":1024,"pooling_mode_cls_token":false,"pooling_mode_mean_tokens":false,"pooling_mode_lasttoken":true,"include_prompt":true}`, "last", ""}, // Qwen3-Embedding's
		{modules, `{"pooling_mode_cls_token":false,"pooling_mode_mean_tokens":true}`, "mean", ""},
		{modules, `{"pooling_mode":"lasttoken"}`, "last", ""},
		{modules, `{"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":true}`, "cls+mean", ""},
		{modules, "", "", ""},
		{`[]`, "", "", ""},
		{`[{"path":"../../etc","type":"a.Pooling"}]`, "", "", "outside the model"},
		{`{}`, "", "", "modules.json"},
		{modules, `[`, "", "config.json"},
	} {
		dir, files := t.TempDir(), map[string]string{}
		if tc.modules != "" {
			files["modules.json"] = tc.modules
		}
		if tc.pooling != "" {
			files["1_Pooling/config.json"] = tc.pooling
		}
		writeTexts(t, dir, files)
		kind, err := ReadPooling(dir)
		if kind != tc.want || (err == nil) != (tc.fault == "") || err != nil && (!strings.Contains(err.Error(), tc.fault) || !errors.Is(err, ErrFormat)) {
			t.Errorf("%s %s: %q, %v, want %q", tc.modules, tc.pooling, kind, err, tc.want)
		}
	}
}

// TestGGUFPooling: a GGUF file may say how embeddings are pooled, and that texts get an end-of-text token.
func TestGGUFPooling(t *testing.T) {
	plain, _ := generateGGUF(t, "nano", Llama, 3, gguf.BF16)
	pairs := pairsOf(t, plain)
	changed := func(key string, value any) string {
		path := filepath.Join(t.TempDir(), "changed.gguf")
		if err := os.WriteFile(path, rewriteGGUF(t, plain, set(pairs, key, value), nil), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for n, want := range map[uint32]string{0: "", 1: "mean", 2: "cls", 3: "last", 4: "rank"} {
		path := changed("llama.pooling_type", n)
		m, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		m.Close()
		if kind, err := ReadPooling(path); kind != want || err != nil {
			t.Errorf("pooling_type %d: %q, %v", n, kind, err)
		}
	}
	if kind, err := ReadPooling(changed("llama.pooling_type", uint32(9))); !errors.Is(err, ErrFormat) {
		t.Errorf("pooling_type 9: %q, %v", kind, err)
	}
	for _, add := range []bool{false, true} {
		m, err := Open(changed("tokenizer.ggml.add_eos_token", add))
		if err != nil {
			t.Fatal(err)
		}
		tokens := m.Tokenizer().EncodePrompt(nil, "light")
		if ends := tokens[len(tokens)-1] == m.Config().EOS[0]; ends != add || slices.Contains(tokens[:len(tokens)-1], m.Config().EOS[0]) {
			t.Errorf("add_eos_token %v: %v", add, tokens)
		}
		m.Close()
	}
}

// TestNamesWithoutPrefix opens a model whose weights have the names that AutoModel saves: without the head
// and without "model.".
func TestNamesWithoutPrefix(t *testing.T) {
	w := map[string]*Tensor{"embed_tokens.weight": {}, "layers.0.input_layernorm.weight": {}, "norm.weight": {}, headName: {}}
	for _, name := range []string{embedName, normName, headName, "model.layers.0.input_layernorm.weight"} {
		if fullNames(w)[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	w = map[string]*Tensor{embedName: {}, "embed_tokens.weight": {}}
	if all := fullNames(w); len(all) != 2 || all[embedName] == nil {
		t.Errorf("a model with full names: %v", all)
	}
}
