package openai

import (
	"slices"
	"time"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/bail"
	"github.com/coppice-llm/coppice/internal/jsonbody"
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

// Pin is a request to /v1/cache/pin: keep the cached part of a prompt for some time, or what the last turn of a
// session left.
type Pin struct {
	Model            string
	Prompt           Prompt
	Session          string // instead of Prompt
	AddSpecialTokens bool   // for a text
	CacheSalt        string
	Duration         time.Duration
}

// DecodeTokenize decodes the body of a request to /tokenize. The error is an *conversation.Error.
func DecodeTokenize(body []byte) (_ *Tokenize, err error) {
	defer conversation.OfFault(&err)
	defer bail.Recover(&err)
	v := jsonbody.Parse(slices.Clone(body))
	t := &Tokenize{}
	t.Options.AddGenerationPrompt = true
	// The fields of a conversation are read as in a chat.
	c := &Chat{Turn: conversation.Turn{Options: t.Options}}
	r := &reading{Params: &c.Params, Shown: &c.Shown, chat: c, decoder: *newDecoder(RefuseUnknown)}
	prompt, special := false, false
	read := map[string]func(value){
		"model":              func(v value) { t.Model = r.Text(v) },
		"prompt":             func(v value) { t.Prompt, prompt = r.Text(v), true },
		"add_special_tokens": func(v value) { t.AddSpecialTokens, special = r.Flag(v), true },
		"return_token_strs":  func(v value) { t.ReturnTokenStrings = r.Flag(v) },
	}
	for _, name := range []string{"messages", "tools", "add_generation_prompt", "chat_template_kwargs"} {
		read[name] = func(v value) { chatFields[name](r, v) }
	}
	r.Fields(v, "", read)
	if prompt == (c.Messages != nil) {
		r.Fail(param("prompt"), "invalid_value", "give either prompt or messages")
	}
	t.Messages, t.Options = c.Messages, c.Options
	if !special {
		t.AddSpecialTokens = prompt
	}
	return t, nil
}

// DecodeDetokenize decodes the body of a request to /detokenize. The error is an *conversation.Error.
func DecodeDetokenize(body []byte) (_ *Detokenize, err error) {
	defer conversation.OfFault(&err)
	defer bail.Recover(&err)
	v, t, d := jsonbody.Parse(body), &Detokenize{}, newDecoder(RefuseUnknown)
	d.Fields(v, "", map[string]func(value){
		"model":  func(v value) { t.Model = d.Text(v) },
		"tokens": func(v value) { t.Tokens = d.tokens(v, maxPromptTokens) },
	})
	if t.Tokens == nil {
		d.Missing(param("tokens"))
	}
	return t, nil
}

// DecodePin decodes the body of a POST to /v1/cache/pin. The error is an *conversation.Error.
func DecodePin(body []byte) (*Pin, error) {
	p, err := DecodeUnpin(body)
	if err == nil && p.Duration == 0 {
		return nil, conversation.Invalid("seconds", "missing_required_parameter", "seconds is missing")
	}
	return p, err
}

// DecodeUnpin decodes the body of a DELETE to /v1/cache/pin: as for POST, but seconds may be
// absent.
func DecodeUnpin(body []byte) (_ *Pin, err error) {
	defer conversation.OfFault(&err)
	defer bail.Recover(&err)
	v, p, d := jsonbody.Parse(body), &Pin{AddSpecialTokens: true}, newDecoder(RefuseUnknown)
	given := 0
	d.Fields(v, "", map[string]func(value){
		"model": func(v value) { p.Model = d.Text(v) },
		"prompt": func(v value) {
			all := d.promptList(v)
			if given = len(all); given > 0 {
				p.Prompt = all[0]
			}
		},
		"session":            func(v value) { p.Session = d.sessionName(v) },
		"add_special_tokens": func(v value) { p.AddSpecialTokens = d.Flag(v) },
		"cache_salt":         func(v value) { p.CacheSalt = d.Label(v, "") },
		"seconds":            func(v value) { p.Duration = d.seconds(v) },
	})
	switch {
	case given > 0 && p.Session != "":
		d.Fail(param("session"), "invalid_value", "give either prompt or session")
	case given == 0 && p.Session != "":
	case given == 0:
		d.Missing(param("prompt"))
	case given > 1:
		d.Fail(param("prompt"), "invalid_value", "prompt has %d prompts, want one", given)
	}
	return p, nil
}

// Fits returns an *conversation.Error if a token is not in a vocabulary of that size.
func (d *Detokenize) Fits(vocab int) error { return conversation.Fit("tokens", d.Tokens, vocab) }
