package main

import "github.com/coppice-llm/coppice/engine"

// samplingFlags say how the tokens of a request are drawn. A nil field is one that the user left out.
type samplingFlags struct {
	Temperature *float32 `placeholder:"T" help:"0 always takes the most probable token; 1 samples from the model's distribution. Default: what the model recommends, else 0.8."`
	TopP        *float32 `name:"top-p" placeholder:"P" help:"Sample among the most probable tokens that together have this probability. 1: all. Default: what the model recommends, else 0.95."`
	TopK        *int32   `name:"top-k" placeholder:"K" help:"Sample among this many most probable tokens. 0: all. Default: what the model recommends, else 40."`
	MinP        *float32 `name:"min-p" placeholder:"P" help:"Sample among the tokens that have this share of the best one's probability. 0: all. Default: what the model recommends, else 0.05."`
	Seed        uint64   `default:"0" help:"Seed of the sampler: the same seed gives the same text."`
}

// over returns defaults with the flags' values instead of its own.
func (f *samplingFlags) over(defaults engine.SamplingParams) engine.SamplingParams {
	p := defaults
	set(&p.Temperature, f.Temperature)
	set(&p.TopP, f.TopP)
	set(&p.TopK, f.TopK)
	set(&p.MinP, f.MinP)
	p.Seed = f.Seed
	return p
}

func set[T any](to *T, v *T) {
	if v != nil {
		*to = *v
	}
}

// fields returns the fields of a request to a server: those that the user gave.
func (f *samplingFlags) fields() map[string]any {
	all := map[string]any{"seed": f.Seed}
	add := func(name string, v any, given bool) {
		if given {
			all[name] = v
		}
	}
	add("temperature", f.Temperature, f.Temperature != nil)
	add("top_p", f.TopP, f.TopP != nil)
	add("top_k", f.TopK, f.TopK != nil)
	add("min_p", f.MinP, f.MinP != nil)
	return all
}
