package main

import (
	"fmt"
	"strings"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model"
)

// defaultSampling returns the sampling parameters of requests that do not give their own, for a
// --sampling-defaults and the model at path; nil means neutral. Penalties that the backend does not
// support are left out, as it would refuse every request.
func defaultSampling(defaults, path string, can engine.Capabilities) (*engine.SamplingParams, error) {
	if defaults == "neutral" {
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
