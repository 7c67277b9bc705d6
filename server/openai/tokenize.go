package openai

import (
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

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

// TokensAnswer is the answer of /tokenize, written in parts: it may be ten times as long as
// the request.
type TokensAnswer struct {
	tokens []kv.Token
	names  naming
	named  bool // it has token_strs
	at     int  // tokens, and then names, that are written
	part   int
	length int
}

// NewTokensAnswer writes tokens. maxModelLen: tokens that the model has positions for. With
// tok it has the token_strs.
func NewTokensAnswer(tokens []kv.Token, maxModelLen int, tok *tokenizer.Tokenizer) *TokensAnswer {
	return &TokensAnswer{tokens: tokens, names: naming{tok: tok}, named: tok != nil, length: maxModelLen}
}

// partTokens is how many tokens a part of an answer holds.
const partTokens = 2048

// Append appends the next part to dst; more reports whether there is another one.
func (a *TokensAnswer) Append(dst []byte) (_ []byte, more bool) {
	if a.part == 0 {
		dst = append(dst, `{"count":`...)
		dst = appendInt(dst, len(a.tokens))
		dst = append(dst, `,"max_model_len":`...)
		dst = appendInt(dst, a.length)
		dst = append(dst, `,"tokens":[`...)
		a.part = 1
	}
	for n := min(a.at+partTokens, len(a.tokens)); a.at < n; a.at++ {
		if a.at > 0 {
			dst = append(dst, ',')
		}
		if a.part == 1 {
			dst = strconv.AppendUint(dst, uint64(a.tokens[a.at]), 10)
		} else {
			dst = a.names.append(dst, a.tokens[a.at])
		}
	}
	switch {
	case a.at < len(a.tokens):
		return dst, true
	case a.part == 2:
		return append(dst, "]}"...), false
	case !a.named:
		return append(dst, `],"token_strs":null}`...), false
	}
	a.part, a.at = 2, 0
	return append(dst, `],"token_strs":[`...), true
}

// TextAnswer is the answer of /detokenize, written in parts: a token may stand for a hundred
// bytes.
type TextAnswer struct {
	tokens []kv.Token
	from   *tokenizer.Decoding
	text   []byte // decoded; at the end of a part what may begin a rune
	begun  bool
}

// NewTextAnswer writes the text of tokens.
func NewTextAnswer(tok *tokenizer.Tokenizer, tokens []kv.Token) *TextAnswer {
	return &TextAnswer{tokens: tokens, from: tok.NewDecoding()}
}

// Append appends the next part to dst; more reports whether there is another one.
func (a *TextAnswer) Append(dst []byte) (_ []byte, more bool) {
	if !a.begun {
		dst = append(dst, `{"prompt":"`...)
		a.begun = true
	}
	n := min(partTokens/8, len(a.tokens))
	a.text = a.from.Append(a.text, a.tokens[:n])
	a.tokens = a.tokens[n:]
	whole := len(a.text)
	if len(a.tokens) > 0 {
		whole -= unfinished(a.text)
	}
	dst = appendText(dst, string(a.text[:whole]))
	a.text = a.text[:copy(a.text, a.text[whole:])]
	if len(a.tokens) > 0 {
		return dst, true
	}
	return append(dst, `"}`...), false
}

// unfinished is how many bytes at the end of text begin a rune and do not complete it.
func unfinished(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
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
