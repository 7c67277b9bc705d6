package main

import (
	"fmt"
	"strings"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model"
)

// samplingDefaults selects the sampling parameters of requests that do not give their own.
type samplingDefaults string

const (
	modelDefaults   samplingDefaults = "model"
	neutralDefaults samplingDefaults = "neutral"
)

// UnmarshalText accepts the names of the choices.
func (d *samplingDefaults) UnmarshalText(text []byte) error {
	switch *d = samplingDefaults(text); *d {
	case modelDefaults, neutralDefaults:
		return nil
	}
	return fmt.Errorf("%q is not a choice; want model or neutral", text)
}

// of returns the defaults of the model at path, or nil if they are neutral. Penalties that
// the backend does not support are left out, as it would refuse every request.
func (d samplingDefaults) of(path string, can engine.Capabilities) (*engine.SamplingParams, error) {
	if d == neutralDefaults {
		return nil, nil
	}
	says, err := model.ReadDefaults(path)
	if err != nil {
		return nil, fmt.Errorf("%w\n(--sampling-defaults neutral ignores this file)", err)
	}
	if says == (model.Defaults{}) {
		return nil, nil
	}
	p := engine.SamplingParams{Temperature: 1}
	set := func(to *float32, v *float64) {
		if v != nil {
			*to = float32(*v)
		}
	}
	set(&p.Temperature, says.Temperature)
	set(&p.TopP, says.TopP)
	set(&p.MinP, says.MinP)
	if says.TopK != nil {
		p.TopK = int32(*says.TopK)
	}
	if can.Penalties {
		set(&p.RepetitionPenalty, says.RepetitionPenalty)
	}
	return &p, nil
}

// describeSampling lists the parameters that differ from neutral.
func describeSampling(p *engine.SamplingParams) string {
	if p == nil {
		return ""
	}
	var parts []string
	show := func(name string, v float32, neutral ...float32) {
		for _, n := range neutral {
			if v == n {
				return
			}
		}
		parts = append(parts, fmt.Sprintf("%s %v", name, v))
	}
	show("temperature", p.Temperature, 1)
	show("top_p", p.TopP, 0, 1)
	show("top_k", float32(p.TopK), 0)
	show("min_p", p.MinP, 0)
	show("repetition_penalty", p.RepetitionPenalty, 0, 1)
	return strings.Join(parts, ", ")
}
