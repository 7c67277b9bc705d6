package main

import (
	"cmp"
	"fmt"
	"text/tabwriter"

	"github.com/coppice-llm/coppice/cmd/internal/hub"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/terminal"
)

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
