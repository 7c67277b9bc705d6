package local_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/fleet"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// TestOpen: a directory and a GGUF file of one model give the same tokens, template and text.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	nano, file := filepath.Join(dir, "nano"), filepath.Join(dir, "nano.gguf")
	if err := errors.Join(random.Generate(nano, random.Spec{Preset: random.Nano, Seed: 1}), random.GenerateGGUF(file, random.Spec{Preset: random.Nano, Seed: 1}, gguf.F32)); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, path := range []string{nano, file} {
		m, err := local.Open(path, local.Options{KVTokens: 2048, Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		if !m.Generated || m.NoTemplate != nil || m.Template() == nil || m.Info().NumPages*m.Info().PageTokens != 2048 {
			t.Errorf("%s: %+v", path, m)
		}
		r, err := m.Chat(context.Background(), []chat.Message{{Role: "user", Content: "Light?"}}, coppice.ChatOptions{Request: coppice.Request{MaxTokens: 8, IgnoreEOS: true}})
		if err != nil {
			t.Error(err)
		}
		texts = append(texts, r.Text)
		for _, read := range []func(string) error{
			func(p string) error { _, err := local.Tokenizer(p); return err },
			func(p string) error { _, err := local.Template(p); return err },
			func(p string) error { _, err := fleet.Bundle(p); return err },
		} {
			if err := read(path); err != nil {
				t.Error(err)
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	if texts[0] != texts[1] {
		t.Errorf("%q and %q", texts[0], texts[1])
	}
}

// TestOpenFails: errors begin with coppice:, and a model without a template opens with
// NoTemplate set.
func TestOpenFails(t *testing.T) {
	nano := t.TempDir()
	if err := random.Generate(nano, random.Spec{Preset: random.Nano, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := local.Open(filepath.Join(nano, "none"), local.Options{}); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, chat.ErrInvalid) || !strings.HasPrefix(err.Error(), "coppice: ") {
		t.Errorf("no such directory: %v", err)
	}
	broken := errors.New("sim: out of order")
	_, err := local.Open(nano, local.Options{Backend: func(*model.Model, *coppice.Config) (engine.Backend, error) { return nil, broken }})
	if !errors.Is(err, broken) || err.Error() != "coppice: out of order" {
		t.Errorf("%v", err)
	}
	if _, err := local.Open(nano, local.Options{Node: coppice.Config{MaxRequests: -1}}); err == nil || !strings.HasPrefix(err.Error(), "coppice: MaxRequests is -1") {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(filepath.Join(nano, "tokenizer_config.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := local.Open(nano, local.Options{Backend: func(m *model.Model, cfg *coppice.Config) (engine.Backend, error) {
		cfg.MaxRequests = 7
		return sim.Open(sim.Config{Vocab: m.Config().Vocab, Pages: 64})
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if !errors.Is(m.NoTemplate, chat.ErrInvalid) || m.Template() != nil {
		t.Errorf("%v", m.NoTemplate)
	}
}

// TestPooling: embeddings are made as modules.json of the directory says, unless the caller says otherwise
// or it can't be done.
func TestPooling(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nano")
	if err := random.Generate(dir, random.Spec{Preset: random.Nano, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	says := func(mode string) {
		t.Helper()
		err := errors.Join(os.WriteFile(filepath.Join(dir, "modules.json"), []byte(`[{"path":"1_Pooling","type":"sentence_transformers.models.Pooling"}]`), 0o644),
			os.MkdirAll(filepath.Join(dir, "1_Pooling"), 0o755), os.WriteFile(filepath.Join(dir, "1_Pooling", "config.json"), []byte(`{"pooling_mode":"`+mode+`"}`), 0o644))
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		mode     string
		o        coppice.Config
		want     scheduler.Pooling
		declined bool
	}{
		{"mean", coppice.Config{}, coppice.MeanTokens, false},
		{"lasttoken", coppice.Config{}, coppice.LastToken, false},
		{"mean", coppice.Config{Pooling: coppice.LastToken}, coppice.LastToken, false},
		{"cls", coppice.Config{}, coppice.LastToken, true},
	} {
		says(tc.mode)
		m, err := local.Open(dir, local.Options{KVTokens: 512, Threads: 1, Node: tc.o})
		if err != nil {
			t.Fatal(err)
		}
		if m.Pooling() != tc.want || (m.NoPooling != nil) != tc.declined {
			t.Errorf("%s: %v, %v", tc.mode, m.Pooling(), m.NoPooling)
		}
		m.Close()
	}
}
