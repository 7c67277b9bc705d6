package openai

import "github.com/coppice-llm/coppice/kv"

// Completion is a request to /v1/completions.
type Completion struct {
	Params
	Prompts []Prompt // one or more
	// Echo: the text of a choice begins with its prompt.
	Echo bool
}

// Prompt is Tokens, if they are not nil, or else Text.
type Prompt struct {
	Text   string
	Tokens []kv.Token
}

// defaultCompletionTokens is OpenAI's max_tokens of completions that give none.
const defaultCompletionTokens = 16

var completionFields = map[string]setter{
	"prompt":             func(r *reading, v value) { r.completion.Prompts = r.promptList(v) },
	"echo":               func(r *reading, v value) { r.completion.Echo = r.flag(v) },
	"add_special_tokens": special(true, "a text is put between those that the model expects; give token ids"),
	"best_of":            func(r *reading, v value) { r.bestOf = int(r.integer(v, 1, maxN)) },
	"logprobs":           (*reading).completionLogprobs,
	"suffix": func(r *reading, v value) {
		if r.text(v) != "" {
			r.fail(v, Unsupported, "suffix is not supported: %s", refused["suffix"].why)
		}
	},
}

// DecodeCompletion reads the body of a request to /v1/completions. The error is an
// *Error. Nothing of body is kept.
func DecodeCompletion(body []byte, o Options) (*Completion, error) {
	v, fault := parse(body)
	if fault != nil {
		return nil, fault
	}
	c := &Completion{}
	r := newReading(&c.Params, o)
	r.completion = c
	r.MaxTokens = defaultCompletionTokens
	r.within("", v, completionFields, shared, extensions, top)
	if r.fault == nil && c.Prompts == nil {
		r.missing(param("prompt"))
	}
	if c.Echo && c.Logprobs && c.Stream {
		r.fail(param("echo"), Unsupported, "echo with logprobs is not streamed: leave stream out")
	}
	if err := r.finish(); err != nil {
		return nil, err
	}
	return c, nil
}

// WantsPromptTokens reports whether the answer shows tokens of prompts, or counts them
// before they have run.
func (c *Completion) WantsPromptTokens() bool {
	return c.Params.WantsPromptTokens() || c.EchoesLogprobs()
}

// EchoesLogprobs reports whether the answer has log-probabilities of the prompts.
func (c *Completion) EchoesLogprobs() bool { return c.Echo && c.Logprobs }

// WantsPromptTokens reports whether the answer shows tokens of prompts, or counts them
// before they have run.
func (p *Params) WantsPromptTokens() bool {
	return p.ReturnTokenIDs || p.PromptLogprobs || p.ContinuousUsage
}

func (r *reading) completionLogprobs(v value) {
	r.TopLogprobs = int(r.integer(v, 0, MaxTopLogprobs))
	r.Logprobs = true
}

// promptList reads a text, texts, token ids, or arrays of token ids.
func (d *decoder) promptList(v value) []Prompt {
	s := scanner{b: v.raw}
	all, _ := d.promptsAt(&s, v.top, nil)
	return all
}

// promptsAt appends the prompts at s to all, and counts them. For a proxy it appends the
// first alone, up to d.most of its tokens.
func (d *decoder) promptsAt(s *scanner, top []byte, all []Prompt) (_ []Prompt, count int) {
	const what = "a string, an array of strings, an array of token ids, or an array of such arrays"
	first := s.next()
	v := value{s.b[s.at:], top}
	switch first {
	case '"':
		return append(all, Prompt{Text: d.textAt(s)}), 1
	case '[':
		s.at++
	default:
		if s.skip(); first != 'n' {
			d.want(v, what)
		}
		return all, 0
	}
	left := maxPromptTokens
	if d.lenient {
		left = d.most
	}
	if c := s.next(); c == '-' || '0' <= c && c <= '9' {
		return append(all, Prompt{Tokens: d.idsAt(s, v, d.room(v, left), left)}), 1
	}
	for ; d.fault == nil && s.more(count, ']'); count++ {
		c := s.next()
		e := value{s.b[s.at:], top}
		switch {
		case d.lenient && count > 0:
			s.skip()
		case count == maxPrompts:
			d.fail(v, "invalid_value", "%s has over %d prompts", v, maxPrompts)
		case count > 0 && (c == '"') != (all[0].Tokens == nil):
			d.fail(e, "invalid_type", "%s is %s, unlike the prompts before it", e, e.kind())
		case c == '"':
			all = append(all, Prompt{Text: d.textAt(s)})
		case c == '[':
			s.at++
			p := Prompt{Tokens: d.idsAt(s, e, d.ids, left)}
			left -= len(p.Tokens)
			all = append(all, p)
		default:
			d.want(e, "a string, a token id or an array of token ids")
			s.skip()
		}
	}
	if count == 0 {
		d.fail(v, "invalid_value", "%s is empty, want at least one prompt", v)
	}
	return all, count
}

// textAt is the string at s.
func (d *decoder) textAt(s *scanner) string {
	raw, escaped := s.quoted()
	return d.unescaped(raw, escaped)
}
