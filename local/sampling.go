package local

import (
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model"
)

// usualSampling is how requests to a model without recommendations draw tokens. Drawn from the whole vocabulary at
// temperature 1, the texts of small models lose their sense.
//
// Source: common_params_sampling in common/common.h of llama.cpp, which Ollama's models and users know.
var usualSampling = engine.SamplingParams{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05}

// sampling returns how requests draw tokens unless they say otherwise: as the model recommends it, where it recommends
// anything about the draw, else usualSampling. A penalty is added if the model recommends one and the backend supports it,
// which would refuse every request otherwise.
func sampling(says model.Defaults, can engine.Capabilities) engine.SamplingParams {
	p := usualSampling
	if says.Temperature != nil || says.TopP != nil || says.TopK != nil || says.MinP != nil {
		p = engine.SamplingParams{
			Temperature: float32(or(says.Temperature, 1)), TopK: int32(or(says.TopK, 0)), TopP: float32(or(says.TopP, 0)), MinP: float32(or(says.MinP, 0)),
		}
	}
	if can.Penalties {
		p.RepetitionPenalty = float32(or(says.RepetitionPenalty, 0))
	}
	return p
}

// or returns the value at p, and without one otherwise.
func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
