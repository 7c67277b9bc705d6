// Package local opens a model on this machine: weights, tokenizer, chat template, backend and
// scheduler behind one Close. It owns the defaults that make Open short, and never runs a
// request: the Node does. Its functions may be called from any goroutine.
//
//	m, err := local.Open("path/to/model", local.Options{})
//	ask := coppice.ChatOptions{Request: coppice.Request{Sampling: m.Sampling}}
//	answer, err := m.Chat(ctx, []chat.Message{{Role: "user", Content: "What is light?"}}, ask)
//	err = m.Close()
package local

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/wording"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
	"github.com/coppice-llm/coppice/tokenizer/tokenfile"
)

// defaultKVTokens is the default of Options.KVTokens.
const defaultKVTokens = 65536

// Options configures Open; the zero value works.
type Options struct {
	// KVTokens is the size of the KV pool. Default: 65536.
	KVTokens int
	// Threads is the number of compute threads. Default: one per processor.
	Threads int
	// Neutral makes Model.Sampling neutral, whatever the model recommends: temperature 1 and all else off.
	Neutral bool
	// Node configures the scheduler and its limits. Open sets Backend, and Tokenizer, Template
	// and EOS to those of the model, as well as Pooling if that is not set.
	Node coppice.Config
	// Backend opens the backend, and may adapt cfg to the backend's limits. The model is closed
	// when it returns. Default: engine/cpu with KVTokens and Threads.
	Backend func(m *model.Model, cfg *coppice.Config) (engine.Backend, error)
}

// Model is a Node that runs a local model. Close releases all of it.
type Model struct {
	*coppice.Node
	// Generated reports whether the weights are random, like those of coppice make-model.
	Generated bool
	// Sampling is how requests should draw tokens unless they have a reason not to: as the model's authors recommend in
	// generation_config.json or in the GGUF file, else with temperature 0.8, top-k 40, top-p 0.95 and min-p 0.05. The Node
	// does not apply it: a coppice.Request says how it draws, and its zero value takes the most probable token.
	Sampling engine.SamplingParams
	// NoTemplate is the reason why the Node has no chat template; nil if it has one.
	NoTemplate error
	// NoPooling is the reason why embeddings are not made as the model's files say; nil if they are.
	NoPooling error
}

// Open opens the model at path: a GGUF file, or a directory laid out like Hugging Face's. Its
// errors are those of reading the files, of the backend and of coppice.Open.
func Open(path string, o Options) (*Model, error) {
	m, err := open(path, &o)
	if err != nil {
		return nil, wording.Error(err)
	}
	return m, nil
}

func open(path string, o *Options) (*Model, error) {
	cfg, opened := o.Node, &Model{}
	var err error
	if cfg.Template, err = Template(path); errors.Is(err, chat.ErrInvalid) {
		opened.NoTemplate = err
	} else if err != nil {
		return nil, err
	}
	var says model.Defaults
	if !o.Neutral {
		if says, err = model.ReadDefaults(path); err != nil {
			return nil, err
		}
	}
	if cfg.Pooling == scheduler.NoPooling {
		if cfg.Pooling, opened.NoPooling, err = pooling(path); err != nil {
			return nil, err
		}
	}
	m, err := model.Open(path)
	if err != nil {
		return nil, err
	}
	opened.Generated = m.Config().Generated
	cfg.Tokenizer, cfg.EOS = m.Tokenizer(), m.Config().EOS
	cfg.Backend, err = o.backend(m, &cfg)
	// The backend has copied the weights, or has failed.
	if err := errors.Join(err, m.Close()); err != nil {
		return nil, err
	}
	if opened.Sampling = (engine.SamplingParams{Temperature: 1}); !o.Neutral {
		opened.Sampling = sampling(says, cfg.Backend.Info().Capabilities)
	}
	if opened.Node, err = coppice.Open(cfg); err != nil {
		return nil, errors.Join(err, cfg.Backend.Close())
	}
	return opened, nil
}

// pooling returns how the files of the model at path say that embeddings are made, NoPooling if they don't;
// no is the reason why that can't be done.
func pooling(path string) (p scheduler.Pooling, no, err error) {
	kind, err := model.ReadPooling(path)
	switch kind {
	case "":
	case scheduler.LastToken.String(), scheduler.MeanTokens.String():
		err = errors.Join(err, p.UnmarshalText([]byte(kind)))
	default:
		no = fmt.Errorf("the model's files ask for the pooling %s; supported are last and mean", kind)
	}
	return p, no, err
}

func (o *Options) backend(m *model.Model, cfg *coppice.Config) (engine.Backend, error) {
	if o.Backend != nil {
		return o.Backend(m, cfg)
	}
	c := cpu.Config{KVTokens: cmp.Or(o.KVTokens, defaultKVTokens), Threads: o.Threads, Log: cfg.Log}
	b, err := cpu.Open(m, c)
	if err != nil {
		return nil, err // not b: a nil pointer in an interface is not nil
	}
	return b, nil
}

// Tokenizer reads the tokenizer of the model at path, a directory or a GGUF file. It fails
// if path has no tokenizer that can be read.
func Tokenizer(path string) (*tokenizer.Tokenizer, error) {
	return read(path, func(dir string) (*tokenizer.Tokenizer, error) {
		return tokenfile.Open(filepath.Join(dir, "tokenizer.json"))
	},
		func(words map[string][]byte) (*tokenizer.Tokenizer, error) {
			return tokenfile.Parse(words["tokenizer.json"], words["tokenizer_config.json"])
		})
}

// Template reads the chat template of the model at path. If there is none, or if it can't be
// parsed, the error wraps chat.ErrInvalid.
func Template(path string) (*chat.Template, error) {
	return read(path, chat.Open, func(words map[string][]byte) (*chat.Template, error) {
		t, err := chat.Parse(words["tokenizer_config.json"])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return t, nil
	})
}

// read reads a part of the model at path: of a directory with fromDir, of a GGUF file with fromWords,
// which gets the files of a directory that the GGUF file stands for, by name.
func read[T any](path string, fromDir func(string) (*T, error), fromWords func(map[string][]byte) (*T, error)) (*T, error) {
	if !model.IsGGUF(path) {
		part, err := fromDir(path)
		return part, wording.Error(err)
	}
	words, err := model.GGUFWords(path)
	if err != nil {
		return nil, wording.Error(err)
	}
	part, err := fromWords(words)
	return part, wording.Error(err)
}
