package openai

import (
	"cmp"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Tokenize is a request to vLLM's /tokenize: Messages, or Prompt if Messages is nil.
type Tokenize struct {
	Model    string
	Prompt   string
	Messages []chat.Message
	Options  chat.Options // of Messages
	// AddSpecialTokens adds the tokens that the model expects around a text. Default: true for a
	// Prompt, false for Messages, since a chat template writes them itself.
	AddSpecialTokens   bool
	ReturnTokenStrings bool
}

// Detokenize is a request to /detokenize.
type Detokenize struct {
	Model  string
	Tokens []kv.Token
}

// Pin is a request to /v1/cache/pin: keep the cached part of a prompt for some time.
type Pin struct {
	Model            string
	Prompt           Prompt
	AddSpecialTokens bool // for a text
	CacheSalt        string
	Duration         time.Duration
}

// DecodeTokenize decodes the body of a request to /tokenize. The error is an *Error.
func DecodeTokenize(body []byte) (*Tokenize, error) {
	v, fault := parse(slices.Clone(body))
	if fault != nil {
		return nil, fault
	}
	t := &Tokenize{}
	t.Options.AddGenerationPrompt = true
	// The fields of a conversation are read as in a chat.
	c := &Chat{Options: t.Options}
	r := &reading{Params: &c.Params, chat: c}
	prompt, special := false, false
	for _, f := range r.object(v, "an object") {
		switch string(f.name) {
		case "model":
			t.Model = r.text(f.value)
		case "prompt":
			t.Prompt, prompt = r.text(f.value), true
		case "add_special_tokens":
			t.AddSpecialTokens, special = r.flag(f.value), true
		case "return_token_strs":
			t.ReturnTokenStrings = r.flag(f.value)
		case "messages", "tools", "add_generation_prompt", "chat_template_kwargs":
			chatFields[string(f.name)](r, f.value)
		default:
			r.unknown("", f)
		}
	}
	if r.fault == nil && prompt == (c.Messages != nil) {
		r.fail(param("prompt"), "invalid_value", "give either prompt or messages")
	}
	if r.fault != nil {
		return nil, r.fault
	}
	t.Messages, t.Options = c.Messages, c.Options
	if !special {
		t.AddSpecialTokens = prompt
	}
	return t, nil
}

// DecodeDetokenize decodes the body of a request to /detokenize. The error is an *Error.
func DecodeDetokenize(body []byte) (*Detokenize, error) {
	v, fault := parse(body)
	if fault != nil {
		return nil, fault
	}
	t := &Detokenize{}
	d := &decoder{}
	for _, f := range d.object(v, "an object") {
		switch string(f.name) {
		case "model":
			t.Model = d.text(f.value)
		case "tokens":
			t.Tokens = d.tokens(f.value, maxPromptTokens)
		default:
			d.unknown("", f)
		}
	}
	if d.fault == nil && t.Tokens == nil {
		d.missing(param("tokens"))
	}
	if d.fault != nil {
		return nil, d.fault
	}
	return t, nil
}

// DecodePin decodes the body of a POST to /v1/cache/pin. The error is an *Error.
func DecodePin(body []byte) (*Pin, error) {
	p, err := DecodeUnpin(body)
	if err == nil && p.Duration == 0 {
		return nil, invalid("seconds", "missing_required_parameter", "seconds is missing: for how long?")
	}
	return p, err
}

// DecodeUnpin decodes the body of a DELETE to /v1/cache/pin: as for POST, but seconds may be
// absent.
func DecodeUnpin(body []byte) (*Pin, error) {
	v, fault := parse(body)
	if fault != nil {
		return nil, fault
	}
	p := &Pin{AddSpecialTokens: true}
	d := &decoder{}
	given := 0
	for _, f := range d.object(v, "an object") {
		switch string(f.name) {
		case "model":
			p.Model = d.text(f.value)
		case "prompt":
			all := d.promptList(f.value)
			if given = len(all); given > 0 {
				p.Prompt = all[0]
			}
		case "add_special_tokens":
			p.AddSpecialTokens = d.flag(f.value)
		case "cache_salt":
			p.CacheSalt = d.label(f.value, "")
		case "seconds":
			p.Duration = d.seconds(f.value)
		default:
			d.unknown("", f)
		}
	}
	switch {
	case d.fault != nil:
	case given == 0:
		d.missing(param("prompt"))
	case given > 1:
		d.fail(param("prompt"), "invalid_value", "prompt has %d prompts, want one", given)
	}
	if d.fault != nil {
		return nil, d.fault
	}
	return p, nil
}

// Fits returns an *Error if a token is not in a vocabulary of that size.
func (p *Params) Fits(vocab int) error {
	biased := make([]kv.Token, len(p.Sampling.Bias))
	for i, b := range p.Sampling.Bias {
		biased[i] = b.Token
	}
	return cmp.Or(fit("stop_token_ids", p.StopTokens, vocab), fit("allowed_token_ids", p.AllowedTokens, vocab), fit("logit_bias", biased, vocab))
}

// Fits returns an *Error if a token is not in a vocabulary of that size.
func (d *Detokenize) Fits(vocab int) error { return fit("tokens", d.Tokens, vocab) }

func fit(param string, tokens []kv.Token, vocab int) error {
	for _, t := range tokens {
		if uint64(t) >= uint64(vocab) {
			return invalid(param, "invalid_value", "%s has token %d, the vocabulary has %d", param, t, vocab)
		}
	}
	return nil
}
