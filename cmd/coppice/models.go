package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/coppice-llm/coppice/cmd/internal/hub"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/internal/terminal"
)

// pullCmd is coppice pull.
type pullCmd struct {
	Model string `arg:"" help:"owner/name, owner/name:Q4_K_M, owner/name@revision:file.gguf, or the address of one."`
}

// Run is called by kong.
func (c *pullCmd) Run(ctx context.Context) error {
	h, err := openHub()
	if err != nil {
		return err
	}
	defer h.Close()
	ref, err := hub.ParseRef(c.Model, h.Endpoint())
	if err != nil {
		return err
	}
	m, err := pull(ctx, h, ref)
	if err != nil {
		return err
	}
	fmt.Fprintf(terminal.Out(), "%v: %s at %s\n", m.Ref, decimalBytes(m.Bytes), m.Path)
	if s := model.Inspect(m.Path); s.Err != nil {
		fmt.Fprintf(terminal.Err(), "coppice: the download is complete, but the model can't be loaded: %v\n", s.Err)
	} else {
		fmt.Fprintf(terminal.Err(), "coppice: try  coppice chat --model %v\n", m.Ref)
	}
	return nil
}

// decimalBytes formats a size in decimal units, as hubs and disks do.
func decimalBytes(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f kB", float64(n)/1e3)
}

// modelsCmd is coppice models.
type modelsCmd struct {
	JSON bool `name:"json" help:"Print one JSON object."`
}

// listedModel describes a model of the cache by its files.
type listedModel struct {
	Name         string `json:"name"`
	Path         string `json:"path"`
	Bytes        int64  `json:"bytes"`
	Architecture string `json:"architecture,omitempty"`
	Weights      string `json:"weights,omitempty"`
	Parameters   int64  `json:"parameters,omitempty"`
	Context      int    `json:"context_tokens,omitempty"`
	Loads        bool   `json:"loads"`
	Why          string `json:"why,omitempty"`
}

// Run is called by kong.
func (c *modelsCmd) Run() error {
	h, err := openHub()
	if err != nil {
		return err
	}
	found, err := h.Models()
	if err != nil {
		return err
	}
	listed := []listedModel{}
	for _, m := range found {
		listed = append(listed, inspected(m))
	}
	if c.JSON {
		return printJSON(map[string]any{"cache": h.Dir(), "models": listed})
	}
	if len(listed) == 0 {
		fmt.Fprintf(terminal.Out(), "There are no models in %s. For example:\n  coppice pull bartowski/SmolLM2-135M-Instruct-GGUF\n", h.Dir())
		return nil
	}
	t := tabwriter.NewWriter(terminal.Out(), 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tSIZE\tARCHITECTURE\tWEIGHTS\tLOADS")
	for _, m := range listed {
		loads := "yes"
		if !m.Loads {
			loads = "no: " + m.Why
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", m.Name, decimalBytes(m.Bytes), cmp.Or(m.Architecture, "-"), cmp.Or(m.Weights, "-"), loads)
	}
	return t.Flush()
}

// inspected reads the description of a model from its files.
func inspected(m *hub.Model) listedModel {
	s := model.Inspect(m.Path)
	l := listedModel{Name: m.Ref.String(), Path: m.Path, Bytes: m.Bytes, Architecture: s.Architecture, Weights: s.Weights,
		Parameters: s.Parameters, Context: s.Context, Loads: s.Err == nil}
	if quant := m.Quantisation(); quant != "" {
		l.Weights = quant // the usual name for a mixture of types, such as Q4_K_M
	}
	if s.Err != nil {
		l.Why = s.Err.Error()
	}
	return l
}

// exampleModel is a small chat model that this program can load, for use in messages.
const exampleModel = "bartowski/SmolLM2-135M-Instruct-GGUF"

// unknownMemory is the largest size of a model, in bytes, if the machine's memory is
// unknown.
const unknownMemory = 4 << 30

// cachedModel returns the newest model of the cache that can be loaded and takes at most
// half of the memory; nil if there is none. It does not contact the hub.
func cachedModel() *hub.Model {
	h, err := openHub()
	if err != nil {
		return nil
	}
	found, err := h.Models()
	if err != nil {
		return nil
	}
	return pickModel(found, memoryBytes())
}

// pickModel does what cachedModel does, for a list of models and a machine with this much memory,
// in bytes; 0 means unknown.
func pickModel(found []*hub.Model, memory int64) *hub.Model {
	most := memory / 2
	if memory == 0 {
		most = unknownMemory
	}
	slices.SortStableFunc(found, func(a, b *hub.Model) int { return b.Modified.Compare(a.Modified) })
	for _, m := range found {
		if m.Bytes <= most && model.Inspect(m.Path).Err == nil {
			return m
		}
	}
	return nil
}

// What the text of a model is worth that no flag chose, as the second half of a sentence.
const (
	speaksOnly    = "a small model speaks like Newton's Opticks and knows nothing"
	randomWeights = "the weights are random, the text means nothing"
)

// standIn describes the model that is used if --model is not given, as the second half of a
// sentence.
func (f *nodeFlags) standIn(backend string) string {
	if f.speaks(backend) {
		return speaksOnly
	}
	return randomWeights
}

// modelOrCached does what modelDir does, but without --model it prefers a suitable model of the
// cache. origin then explains the choice, for printing after the model's name.
func (f *nodeFlags) modelOrCached(ctx context.Context, backend string) (dir, origin string, remove func(), err error) {
	if f.Model == "" {
		if m := cachedModel(); m != nil {
			return m.Path, fmt.Sprintf(" (no --model given: using %v from the Hugging Face cache; coppice models lists others)", m.Ref), func() {}, nil
		}
		origin = fmt.Sprintf(" (no --model given: %s; for a real one: coppice pull %s)", f.standIn(backend), exampleModel)
	}
	dir, remove, err = f.modelDir(ctx, backend)
	return dir, origin, remove, err
}

// makeModelCmd is coppice make-model.
type makeModelCmd struct {
	Path   string        `arg:"" type:"path" help:"Directory to write; it is made if missing. With --gguf: the file."`
	Preset random.Preset `default:"demo" help:"Size: nano (for tests), demo, mini (widths of 256, for K types), tiny (13M parameters), small (100M) or half (450M)."`
	Arch   model.Arch    `default:"llama" help:"Family: llama, mistral, qwen2 or qwen3."`
	GGUF   *gguf.Type    `name:"gguf" placeholder:"TYPE" help:"Write a GGUF file with matrices of this type: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, IQ4_NL or MXFP4."`
	Seed   uint64        `default:"1" help:"Seed of the weights: the same seed gives the same bits on every machine."`
}

// Run is called by kong.
func (c *makeModelCmd) Run() error {
	spec := random.Spec{Preset: c.Preset, Arch: c.Arch, Seed: c.Seed}
	var err error
	if c.GGUF != nil {
		err = random.GenerateGGUF(c.Path, spec, *c.GGUF)
	} else {
		err = random.Generate(c.Path, spec)
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
