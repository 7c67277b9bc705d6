package server

import (
	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/openai"
)

// request is what the node is asked for the parameters of a request, all but the prompt.
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

// completionRequest is what the node is asked for prompt i.
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

// sampling is what requests get that do not say how to sample.
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

// documented names the defaults of sampling in the document.
func documented(s *engine.SamplingParams) map[string]float32 {
	if s == nil {
		return nil
	}
	all := map[string]float32{"temperature": s.Temperature}
	for name, v := range map[string]float32{"top_p": s.TopP, "top_k": float32(s.TopK), "min_p": s.MinP, "repetition_penalty": s.RepetitionPenalty} {
		if v != 0 { // off
			all[name] = v
		}
	}
	return all
}
