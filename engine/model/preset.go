package model

import (
	"fmt"
	"slices"
	"strings"
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

// Presets lists the presets, smallest first.
func Presets() []Preset { return slices.Clone(presets) }

func (p Preset) String() string { return string(p) }

// UnmarshalText accepts the name of a preset. Its error lists all names.
func (p *Preset) UnmarshalText(text []byte) error {
	if q := Preset(text); slices.Contains(presets, q) {
		*p = q
		return nil
	}
	return fmt.Errorf("model: unknown preset %q, want one of %s", text, presetNames())
}

func presetNames() string {
	names := make([]string, len(presets))
	for i, p := range presets {
		names[i] = string(p)
	}
	return strings.Join(names, ", ")
}

// config returns the shape for s; the special ids come from the tokenizer. The families differ
// from Llama as in their published models: Mistral 7B v0.3, Qwen2.5, and Qwen3, whose heads
// together are twice as wide as the residual stream.
func (s Spec) config() (*Config, error) {
	c, err := s.Preset.shape()
	if err != nil {
		return nil, err
	}
	arch := s.Arch.withDefault()
	if !arch.known() {
		return nil, unknownArch(string(arch))
	}
	c.Architecture, c.Generated = arch.class(), true
	switch arch {
	case Mistral:
		c.RopeTheta = 1e6
	case Qwen2:
		c.RopeTheta, c.NormEps, c.QKVBias = 1e6, 1e-6, true
	case Qwen3:
		c.RopeTheta, c.NormEps, c.QKNorm = 1e6, 1e-6, true
		c.HeadDim *= 2
	}
	return c, nil
}

// shape returns p's config in the form of Llama, before the changes for the family.
func (p Preset) shape() (*Config, error) {
	c := &Config{NormEps: 1e-5, RopeTheta: 10000}
	switch p {
	case Nano:
		c.Hidden, c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.FFN = 64, 2, 4, 2, 16, 192
		c.Vocab, c.MaxPositions = 320, 4096
	case Demo:
		c.Hidden, c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.FFN = 96, 4, 6, 2, 16, 256
		c.Vocab, c.MaxPositions, c.TiedHead = 1024, 8192, true
	case Mini:
		c.Hidden, c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.FFN = 256, 2, 4, 2, 64, 512
		c.Vocab, c.MaxPositions = 512, 4096
	case Tiny:
		c.Hidden, c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.FFN = 384, 6, 6, 2, 64, 1024
		c.Vocab, c.MaxPositions, c.TiedHead = 8192, 8192, true
	case Small:
		c.Hidden, c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.FFN = 768, 12, 12, 4, 64, 2048
		c.Vocab, c.MaxPositions, c.TiedHead = 32000, 8192, true
	case Half:
		c.Hidden, c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.FFN = 1024, 24, 16, 2, 64, 4864
		c.Vocab, c.MaxPositions, c.TiedHead = 32000, 8192, true
	default:
		return nil, fmt.Errorf("model: unknown preset %q, want one of %s", string(p), presetNames())
	}
	return c, nil
}
