package server

import (
	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/openai"
)

// request converts the parameters of a request for the node. The prompt is left out.
func request(p *openai.Params) coppice.Request {
	s := &p.Sampling
	req := coppice.Request{
		MaxTokens: p.MaxTokens, MinTokens: p.MinTokens, IgnoreEOS: p.IgnoreEOS, StopTokens: p.StopTokens, StopStrings: p.StopStrings,
		KeepStop: p.KeepStop, AllowedTokens: p.AllowedTokens, Format: coppice.Format(p.Format), Priority: p.Priority,
		PublicTokens: p.PublicTokens, Class: p.Class, Timeout: p.Timeout, QueueTimeout: p.QueueTimeout,
		Samples: p.N, PromptLogprobs: p.PromptLogprobs, PromptTop: int32(p.PromptTop),
		Sampling: engine.SamplingParams{
			Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP, RepetitionPenalty: s.RepetitionPenalty,
			PresencePenalty: s.PresencePenalty, FrequencyPenalty: s.FrequencyPenalty, Seed: s.Seed,
			Logprobs: p.Logprobs, TopLogprobs: int32(p.TopLogprobs),
		},
	}
	for _, b := range s.Bias {
		req.Sampling.Bias = append(req.Sampling.Bias, engine.TokenBias(b))
	}
	return req
}

// completionRequest converts prompt i of a completion for the node.
func completionRequest(c *openai.Completion, i int) coppice.Request {
	req := request(&c.Params)
	if c.EchoesLogprobs() {
		req.PromptLogprobs, req.PromptTop = true, int32(max(c.PromptTop, c.TopLogprobs))
	}
	if p := &c.Prompts[i]; p.Tokens != nil {
		req.Tokens = p.Tokens
	} else {
		req.Prompt = p.Text
	}
	return req
}

// sampling converts Config.Sampling; nil stays nil.
func sampling(s *engine.SamplingParams) *openai.Sampling {
	if s == nil {
		return nil
	}
	d := &openai.Sampling{
		Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP, RepetitionPenalty: s.RepetitionPenalty,
		PresencePenalty: s.PresencePenalty, FrequencyPenalty: s.FrequencyPenalty, Seed: s.Seed,
	}
	for _, b := range s.Bias {
		d.Bias = append(d.Bias, openai.TokenBias(b))
	}
	return d
}

// documented returns the sampling defaults to show in the OpenAPI document.
func documented(s *engine.SamplingParams) map[string]float32 {
	if s == nil {
		return nil
	}
	all := map[string]float32{"temperature": s.Temperature}
	for name, v := range map[string]float32{"top_p": s.TopP, "top_k": float32(s.TopK), "min_p": s.MinP, "repetition_penalty": s.RepetitionPenalty} {
		if v != 0 { // zero is off, the document's own default
			all[name] = v
		}
	}
	return all
}
