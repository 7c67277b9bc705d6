package random

import (
	"cmp"
	"errors"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/enum"
)

// Preset names the size of a generated model.
type Preset string

// The presets. All are in bf16 with random weights: they cost what a real model of their size
// and family costs, and output nonsense.
const (
	Nano  Preset = "nano"  // 0.1 M parameters, for tests; its head is not tied
	Mini  Preset = "mini"  // 1.6 M; its widths are multiples of 256, which GGUF's K types need
	Demo  Preset = "demo"  // 0.5 M, fast enough to chat with on a small machine
	Tiny  Preset = "tiny"  // 13 M
	Small Preset = "small" // 100 M, 200 MB
	Half  Preset = "half"  // 450 M: Qwen2.5-0.5B's depth and FFN, widths for K types; 260 MB in Q4_K
)

var presets = []Preset{Nano, Demo, Mini, Tiny, Small, Half}

func (p Preset) String() string { return string(p) }

// UnmarshalText accepts the name of a preset. Its error lists all names.
func (p *Preset) UnmarshalText(text []byte) error {
	return enum.Pick("random", "preset", p, text, presets...)
}

// config returns the shape for s; the special ids come from the tokenizer. The families differ
// from Llama as in their published models: Mistral 7B v0.3, Qwen2.5, and Qwen3, whose heads
// together are twice as wide as the residual stream.
func (s Spec) config() (*model.Config, error) {
	arch := cmp.Or(s.Arch, model.Llama)
	if err := errors.Join(s.Preset.UnmarshalText([]byte(s.Preset)), arch.UnmarshalText([]byte(arch))); err != nil {
		return nil, err
	}
	c := shapes[s.Preset]
	c.NormEps, c.RopeTheta, c.Architecture, c.Generated = 1e-5, 10000, arch.Class(), true
	switch arch {
	case model.Mistral:
		c.RopeTheta = 1e6
	case model.Qwen2:
		c.RopeTheta, c.NormEps, c.QKVBias = 1e6, 1e-6, true
	case model.Qwen3:
		c.RopeTheta, c.NormEps, c.QKNorm = 1e6, 1e-6, true
		c.HeadDim *= 2
	}
	return &c, nil
}

// shapes has the presets' configs in the form of Llama, before the changes for the family.
var shapes = map[Preset]model.Config{
	Nano:  {Hidden: 64, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 16, FFN: 192, Vocab: 320, MaxPositions: 4096},
	Demo:  {Hidden: 96, Layers: 4, Heads: 6, KVHeads: 2, HeadDim: 16, FFN: 256, Vocab: 1024, MaxPositions: 8192, TiedHead: true},
	Mini:  {Hidden: 256, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 512, Vocab: 512, MaxPositions: 4096},
	Tiny:  {Hidden: 384, Layers: 6, Heads: 6, KVHeads: 2, HeadDim: 64, FFN: 1024, Vocab: 8192, MaxPositions: 8192, TiedHead: true},
	Small: {Hidden: 768, Layers: 12, Heads: 12, KVHeads: 4, HeadDim: 64, FFN: 2048, Vocab: 32000, MaxPositions: 8192, TiedHead: true},
	Half:  {Hidden: 1024, Layers: 24, Heads: 16, KVHeads: 2, HeadDim: 64, FFN: 4864, Vocab: 32000, MaxPositions: 8192, TiedHead: true},
}
