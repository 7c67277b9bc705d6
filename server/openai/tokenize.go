package openai

import (
	"slices"
	"strconv"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Tokenize is a request to /tokenize, which vLLM has: Messages, if not nil, or Prompt.
type Tokenize struct {
	Model    string
	Prompt   string
	Messages []chat.Message
	Options  chat.Options // of Messages
	// AddSpecialTokens puts round the text what the model expects there. Default:
	// round a Prompt; a chat template writes them itself.
	AddSpecialTokens   bool
	ReturnTokenStrings bool
}

// Detokenize is a request to /detokenize.
type Detokenize struct {
	Model  string
	Tokens []kv.Token
}

// Pin is a request to /v1/cache/pin: keep what is cached of a prompt for a while.
type Pin struct {
	Model            string
	Prompt           Prompt
	AddSpecialTokens bool // to a text
	CacheSalt        string
	Duration         time.Duration
}

// DecodeTokenize reads the body of a request to /tokenize. The error is an *Error.
func DecodeTokenize(body []byte) (*Tokenize, error) {
	v, fault := parse(slices.Clone(body))
	if fault != nil {
		return nil, fault
	}
	t := &Tokenize{}
	t.Options.AddGenerationPrompt = true
	// The fields of the conversation are read as those of a chat.
	c := &Chat{Options: t.Options}
	r := &reading{Params: &c.Params, chat: c}
	prompt, special := false, false
	for _, f := range r.object(v, "an object") {
		switch f.name {
		case "model":
			t.Model = r.text(f.value)
		case "prompt":
			t.Prompt, prompt = r.text(f.value), true
		case "add_special_tokens":
			t.AddSpecialTokens, special = r.flag(f.value), true
		case "return_token_strs":
			t.ReturnTokenStrings = r.flag(f.value)
		case "messages", "tools", "add_generation_prompt", "chat_template_kwargs":
			chatFields[f.name](r, f.value)
		default:
			r.unknown(f)
		}
	}
	if r.fault == nil && prompt == (c.Messages != nil) {
		r.fail("prompt", "invalid_value", "give either prompt or messages")
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

// DecodeDetokenize reads the body of a request to /detokenize. The error is an *Error.
func DecodeDetokenize(body []byte) (*Detokenize, error) {
	v, fault := parse(body)
	if fault != nil {
		return nil, fault
	}
	t := &Detokenize{}
	d := &decoder{}
	for _, f := range d.object(v, "an object") {
		switch f.name {
		case "model":
			t.Model = d.text(f.value)
		case "tokens":
			t.Tokens = d.tokens(f.value, MaxPromptTokens)
		default:
			d.unknown(f)
		}
	}
	if d.fault == nil && t.Tokens == nil {
		d.fail("tokens", "missing_required_parameter", "tokens is missing")
	}
	if d.fault != nil {
		return nil, d.fault
	}
	return t, nil
}

// DecodePin reads the body of a POST to /v1/cache/pin. The error is an *Error.
func DecodePin(body []byte) (*Pin, error) {
	p, err := DecodeUnpin(body)
	if err == nil && p.Duration == 0 {
		d := &decoder{}
		d.fail("seconds", "missing_required_parameter", "seconds is missing: for how long?")
		return nil, d.fault
	}
	return p, err
}

// DecodeUnpin reads the body of a DELETE: as that of the POST, but it need not say for
// how long.
func DecodeUnpin(body []byte) (*Pin, error) {
	v, fault := parse(body)
	if fault != nil {
		return nil, fault
	}
	p := &Pin{AddSpecialTokens: true}
	d := &decoder{}
	given := 0
	for _, f := range d.object(v, "an object") {
		switch f.name {
		case "model":
			p.Model = d.text(f.value)
		case "prompt":
			all := d.prompts(f.value)
			if given = len(all); given > 0 {
				p.Prompt = all[0]
			}
		case "add_special_tokens":
			p.AddSpecialTokens = d.flag(f.value)
		case "cache_salt":
			p.CacheSalt = d.label(f.value)
		case "seconds":
			p.Duration = d.seconds(f.value)
		default:
			d.unknown(f)
		}
	}
	switch {
	case d.fault != nil:
	case given == 0:
		d.fail("prompt", "missing_required_parameter", "prompt is missing")
	case given > 1:
		d.fail("prompt", "invalid_value", "prompt has %d prompts, want one", given)
	}
	if d.fault != nil {
		return nil, d.fault
	}
	return p, nil
}

// AppendTokens writes the answer of /tokenize. maxModelLen: tokens that the model has
// positions for. With tok it has the token_strs.
func AppendTokens(dst []byte, tokens []kv.Token, maxModelLen int, tok *tokenizer.Tokenizer) []byte {
	dst = append(dst, `{"count":`...)
	dst = appendInt(dst, len(tokens))
	dst = append(dst, `,"max_model_len":`...)
	dst = appendInt(dst, maxModelLen)
	dst = append(dst, `,"tokens":`...)
	dst = appendIDs(dst, tokens)
	dst = append(dst, `,"token_strs":`...)
	if tok == nil {
		return append(dst, "null}"...)
	}
	names := naming{tok: tok}
	dst = append(dst, '[')
	for i, t := range tokens {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = names.append(dst, t)
	}
	return append(dst, "]}"...)
}

// AppendText writes the answer of /detokenize.
func AppendText(dst []byte, text string) []byte {
	dst = append(dst, `{"prompt":`...)
	return append(appendString(dst, text), '}')
}

func appendIDs(dst []byte, tokens []kv.Token) []byte {
	dst = append(dst, '[')
	for i, t := range tokens {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(t), 10)
	}
	return append(dst, ']')
}
