package main

import (
	"fmt"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/internal/terminal"
)

// makeModelCmd is coppice make-model.
type makeModelCmd struct {
	Path   string       `arg:"" type:"path" help:"Directory to write; it is made if missing. With --gguf: the file."`
	Preset model.Preset `default:"demo" help:"Size: nano (for tests), demo, mini (widths of 256, for K types), tiny (13M parameters), small (100M) or half (450M)."`
	Arch   model.Arch   `default:"llama" help:"Family: llama, mistral, qwen2 or qwen3."`
	GGUF   *gguf.Type   `name:"gguf" placeholder:"TYPE" help:"Write a GGUF file with matrices of this type: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, IQ4_NL or MXFP4."`
	Seed   uint64       `default:"1" help:"Seed of the weights: the same seed gives the same bits on every machine."`
}

// Run is called by kong.
func (c *makeModelCmd) Run() error {
	spec := model.Spec{Preset: c.Preset, Arch: c.Arch, Seed: c.Seed}
	var err error
	if c.GGUF != nil {
		err = model.GenerateGGUF(c.Path, spec, *c.GGUF)
	} else {
		err = model.Generate(c.Path, spec)
	}
	if err != nil {
		return err
	}
	m, err := model.Open(c.Path)
	if err != nil {
		return err
	}
	defer m.Close()
	cfg := m.Config()
	fmt.Fprintf(terminal.Err(), "coppice: wrote %s: %s, %d layers of %d, vocabulary %d, id %s\n",
		c.Path, cfg.Architecture, cfg.Layers, cfg.Hidden, cfg.Vocab, m.ID())
	return nil
}
