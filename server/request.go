package server

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/grammar/jsonschema"
	"github.com/coppice-llm/coppice/internal/budget"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// formatOf converts a format for the node.
func formatOf(f *conversation.Format) coppice.Format {
	switch {
	case f.JSON:
		return coppice.Format{Language: jsonschema.AnyObject}
	case f.JSONSchema != "":
		return coppice.Format{Language: jsonschema.Schema, Text: f.JSONSchema}
	case f.Regexp != "":
		return coppice.Format{Language: grammar.RE2{}, Text: f.Regexp}
	case f.Calls != "":
		return coppice.Format{Language: jsonschema.ToolCalls, Text: f.Calls}
	}
	return coppice.Format{}
}

// request converts the parameters of a request for the node. The prompt is left out.
func request(p *conversation.Params) coppice.Request {
	s := &p.Sampling
	req := coppice.Request{
		MaxTokens: p.MaxTokens, MinTokens: p.MinTokens, IgnoreEOS: p.IgnoreEOS, StopTokens: p.StopTokens, StopStrings: p.StopStrings,
		KeepStop: p.KeepStop, AllowedTokens: p.AllowedTokens, Format: formatOf(&p.Format), Priority: p.Priority,
		Speculate: scheduler.Speculate(p.Speculate), PublicTokens: p.PublicTokens, Class: p.Class, Session: p.Session, Timeout: p.Timeout, QueueTimeout: p.QueueTimeout,
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
func sampling(s *engine.SamplingParams) *conversation.Sampling {
	if s == nil {
		return nil
	}
	d := &conversation.Sampling{
		Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP, RepetitionPenalty: s.RepetitionPenalty,
		PresencePenalty: s.PresencePenalty, FrequencyPenalty: s.FrequencyPenalty, Seed: s.Seed,
	}
	for _, b := range s.Bias {
		d.Bias = append(d.Bias, conversation.TokenBias(b))
	}
	return d
}

// documented returns the sampling defaults by the names of the API's fields, without those that are off.
func documented(s *engine.SamplingParams) map[string]float32 {
	if s == nil {
		s = &engine.SamplingParams{Temperature: 1}
	}
	all := map[string]float32{"temperature": s.Temperature}
	for name, v := range map[string]float32{"top_p": s.TopP, "top_k": float32(s.TopK), "min_p": s.MinP, "repetition_penalty": s.RepetitionPenalty} {
		if v != 0 { // zero is off, the document's own default
			all[name] = v
		}
	}
	return all
}

// DescribeSampling returns the sampling parameters of s that are not off by the names of the API's fields:
// "min_p=0.05, temperature=0.8".
func DescribeSampling(s *engine.SamplingParams) string {
	all := documented(s)
	parts := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, name+"="+strconv.FormatFloat(float64(all[name]), 'g', -1, 32))
	}
	return strings.Join(parts, ", ")
}

var errNoTemplate = conversation.NewError(http.StatusBadRequest, "no_chat_template", "the model has no chat template, so it may be no chat model: send text to /v1/completions").At("messages")

// errRenders is the answer to a conversation that had no turn to be rendered in time.
var errRenders = conversation.NewError(http.StatusServiceUnavailable, "server_busy", "all processors render other conversations; retry later")

// render turns a conversation into a prompt. o are the template's further inputs. plain holds the
// ranges of text in which control tokens are plain text. render fails if the server has no
// template, or the template refuses the conversation.
//
// At most as many conversations are rendered at a time as there are processors. What a rendering uses is
// charged to the memory for open requests until it ends; its result until the request ends. A rendering
// whose client has gone ends.
func (c *call) render(messages []chat.Message, o chat.Options) (text string, plain []int, err error) {
	if c.s.cfg.Template == nil {
		return "", nil, errNoTemplate
	}
	ctx, cancel := c.s.open.Bound(c.r.Context())
	defer cancel()
	if err := c.s.turn(ctx); err != nil {
		return "", nil, err
	}
	defer func() { <-c.s.renders }()
	var used budget.Account
	if err := used.Extend(c.s.memory, 0); err != nil {
		return "", nil, noRoom(err)
	}
	defer used.Close()
	o.Now, o.MaxBytes, o.ToolsPrompt = c.start, c.s.policies.longest, c.s.cfg.ToolsPrompt
	o.Charge = func(n int) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := used.Add(n); err != nil {
			return noRoom(err)
		}
		return nil
	}
	r, err := c.s.cfg.Template.RenderAs(messages, o, c.s.policies.controls, c.s.cfg.Controls)
	switch {
	case errors.Is(err, chat.ErrTooLong):
		err = c.s.fits("messages", c.s.policies.longest+1)
	case err == nil:
		err = c.charge(len(r.Text) + intBytes*len(r.Plain))
	}
	return r.Text, r.Plain, err
}

// intBytes is the size of an int in memory.
const intBytes = 8

// turn waits for a turn to render, at most BusyWait. The caller must receive from Server.renders when it
// has rendered.
func (s *Server) turn(ctx context.Context) error {
	select {
	case s.renders <- struct{}{}:
		return nil
	default:
	}
	late := time.NewTimer(s.cfg.BusyWait)
	defer late.Stop()
	select {
	case s.renders <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late.C:
		return errRenders
	}
}
