package main

import (
	"fmt"
	"os"

	"github.com/coppice-llm/coppice/engine/model"
)

type makeModelCmd struct {
	Dir    string       `arg:"" type:"path" help:"Directory to write; made if it is not there."`
	Preset model.Preset `default:"demo" help:"Size: nano (tests), demo, tiny (13M parameters) or small (100M)."`
	Arch   model.Arch   `default:"llama" help:"Family: llama, mistral, qwen2 or qwen3."`
	Seed   uint64       `default:"1" help:"Of the weights: the same seed gives the same bits on every machine."`
}

// Help is printed by kong under the summary.
func (*makeModelCmd) Help() string {
	return `Examples:
  coppice make-model ./demo
  coppice make-model ./tiny --preset tiny --seed 7
  coppice make-model ./qwen --arch qwen3 --preset nano`
}

// Run is called by kong.
func (c *makeModelCmd) Run() error {
	if err := model.Generate(c.Dir, model.Spec{Preset: c.Preset, Arch: c.Arch, Seed: c.Seed}); err != nil {
		return err
	}
	m, err := model.Open(c.Dir)
	if err != nil {
		return err
	}
	defer m.Close()
	cfg := m.Config()
	fmt.Fprintf(os.Stderr, "coppice: wrote %s: %s, %d layers of %d, vocabulary %d, id %s\n",
		c.Dir, cfg.Architecture, cfg.Layers, cfg.Hidden, cfg.Vocab, m.ID())
	return nil
}
