package answer

import (
	coppice "github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/jsontext"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
)

// Response collects an answer that is sent as one JSON object.
type Response struct {
	Answer
	choices []choice
	scores  []scored // per prompt; tokens is not set
	turns   turns
}

// choice collects the pieces of one choice.
type choice struct {
	text     []byte
	tokens   []kv.Token
	logprobs []float32
	top      [][]engine.TokenLogprob
	ending   *coppice.Ending
	tools    []string // that the choice calls, in order: set by Append
	watch    *parser  // finds repeated calls while the output goes on; nil: calls may repeat
}

// Whole returns a Response for a. Use either Whole or Stream.
func (a *Answer) Whole() *Response {
	return &Response{Answer: *a, choices: make([]choice, len(a.prompts)*a.params.N), scores: make([]scored, len(a.prompts))}
}

// Repeated reports the same as Stream.Repeated.
func (r *Response) Repeated() bool { return r.turns.done(len(r.choices)) }

// Tools returns the names of the tools that the first choice calls, in order, after Append.
func (r *Response) Tools() []string { return r.choices[0].tools }

// Piece adds a piece of prompt i. The pieces of one sample must come in order.
func (r *Response) Piece(i int, p *coppice.Piece) {
	p = r.cut(p)
	index := i*r.params.N + p.Sample
	c := &r.choices[index]
	if r.greedy {
		if c.watch == nil {
			c.watch = r.newParser()
		}
		if c.watch != nil {
			c.watch.next(p.Text, p.Ending != nil)
		}
		r.turns.note(index, p.Ending != nil, c.watch.repeated())
	}
	c.text = append(c.text, p.Text...)
	c.tokens = append(c.tokens, p.Tokens...)
	c.logprobs = append(c.logprobs, p.Logprobs...)
	c.top = append(c.top, p.Top...)
	if p.PromptLogprobs != nil {
		r.scores[i] = scored{logprobs: p.PromptLogprobs, top: p.PromptTop}
	}
	if p.Ending != nil {
		c.ending = p.Ending
		r.prompts[i].bill.Add(p.Ending)
	}
}

// Append writes the answer. Call it once all samples of all prompts have ended.
func (r *Response) Append(dst []byte) []byte {
	object := "text_completion"
	if r.chat {
		object = "chat.completion"
	}
	dst = r.appendHead(dst, object)
	dst = append(dst, `,"choices":[`...)
	for i := range r.choices {
		if i > 0 {
			dst = append(dst, ',')
		}
		if r.chat {
			dst = r.chatChoice(dst, i)
		} else {
			dst = r.whole(dst, i)
		}
	}
	dst = append(dst, `],"usage":`...)
	dst = openai.Usage(r.Usage()).Append(dst)
	if r.chat {
		dst = r.ofPrompt(dst, 0)
	}
	return append(dst, '}')
}

// whole writes a choice of /v1/completions. index is prompt*n + sample.
func (r *Response) whole(dst []byte, index int) []byte {
	c, prompt, echo := &r.choices[index], index/r.params.N, ""
	s := r.scored(c)
	if r.echo {
		echo = r.prompts[prompt].text
		if s != nil {
			s = r.after(prompt, s)
		}
	}
	dst = r.completionChoice(dst, index, echo+string(c.text), s, new(int), c.ending)
	dst = r.ofPrompt(dst, prompt)
	if r.shown.ReturnTokenIDs {
		dst = appendIDs(append(dst, `,"token_ids":`...), c.tokens)
	}
	return append(dst, '}')
}

// chatChoice writes a choice of /v1/chat/completions.
func (r *Response) chatChoice(dst []byte, index int) []byte {
	c := &r.choices[index]
	dst = append(dst, `{"index":`...)
	dst = jsontext.AppendInt(dst, index)
	dst = append(dst, `,"message":{"role":"assistant","content":`...)
	out := r.newParser()
	if out == nil {
		dst = jsontext.AppendString(dst, string(c.text))
	} else {
		dst = r.message(dst, index, split(out, string(c.text)))
		c.tools = out.tools()
	}
	dst = r.chatLogprobs(append(dst, `,"refusal":null},"logprobs":`...), r.scored(c))
	dst = r.appendFinish(append(dst, ','), out.stopped(c.ending), out.calls() > 0)
	if r.shown.ReturnTokenIDs {
		dst = appendIDs(append(dst, `,"token_ids":`...), c.tokens)
	}
	return append(dst, '}')
}

// message writes the fields content, reasoning_content and tool_calls of m. choice is the number
// of the choice, for the ids of calls.
func (r *Response) message(dst []byte, choice int, m message) []byte {
	if len(m.content) == 0 && len(m.calls) > 0 {
		dst = append(dst, "null"...)
	} else {
		dst = jsontext.AppendString(dst, string(m.content))
	}
	if len(m.reasoning) > 0 {
		dst = append(dst, `,"reasoning_content":`...)
		dst = jsontext.AppendString(dst, string(m.reasoning))
	}
	for i, call := range m.calls {
		if i == 0 {
			dst = append(dst, `,"tool_calls":[{`...)
		} else {
			dst = append(dst, `},{`...)
		}
		dst = r.appendCall(dst, choice, i, call.name)
		dst = jsontext.AppendString(dst, string(call.arguments))
		dst = append(dst, '}')
	}
	if len(m.calls) > 0 {
		dst = append(dst, `}]`...)
	}
	return dst
}

// scored returns the tokens of c with their log-probabilities, nil if the request wants none.
func (r *Response) scored(c *choice) *scored {
	if !r.params.Logprobs {
		return nil
	}
	return &scored{c.tokens, c.logprobs, c.top}
}

// after returns the tokens of a prompt followed by the tokens of s, for the option echo. prompt is
// the prompt's index.
func (r *Response) after(prompt int, s *scored) *scored {
	p := r.prompts[prompt].tokens
	n := len(p)
	all := &scored{
		tokens:   append(append(make([]kv.Token, 0, n+len(s.tokens)), p...), s.tokens...),
		logprobs: make([]float32, n, n+len(s.logprobs)),
		top:      make([][]engine.TokenLogprob, n, n+len(s.top)),
	}
	own := &r.scores[prompt]
	copy(all.top, own.top)
	all.top = append(all.top, s.top...)
	for i := range n {
		all.logprobs[i] = nan
		if f, ok := own.known(i); ok {
			all.logprobs[i] = f
		}
	}
	all.logprobs = append(all.logprobs, s.logprobs...)
	return all
}

// ofPrompt writes vLLM's fields about prompt i. A completion has them in each choice, a chat at
// the end of the whole object.
func (r *Response) ofPrompt(dst []byte, i int) []byte {
	p := r.prompts[i].tokens
	if r.params.PromptLogprobs {
		dst = append(dst, `,"prompt_logprobs":`...)
		dst = r.promptLogprobs(dst, &scored{tokens: p, logprobs: r.scores[i].logprobs, top: r.scores[i].top})
	}
	if r.shown.ReturnTokenIDs {
		dst = appendIDs(append(dst, `,"prompt_token_ids":`...), p)
	}
	return dst
}
