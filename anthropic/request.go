package anthropic

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/bail"
	"github.com/coppice-llm/coppice/internal/jsonbody"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Options configure the decoding of requests. The zero value refuses unknown fields and uses temperature 1.
type Options struct {
	// IgnoreUnknown ignores fields that are neither known nor known to be harmless.
	IgnoreUnknown bool
	// KeepNonces leaves nonces in the prompt; see Request.Stripped.
	KeepNonces bool
	// Sampling holds the defaults of sampling parameters. nil: temperature 1, and everything else off.
	Sampling *conversation.Sampling
	// CallForm is the name of the form of the model's tool calls, one of package toolcall's. "": hermes.
	CallForm string
}

// Request is a request for the next turn of a conversation.
type Request struct {
	conversation.Turn
	// Breakpoints are the blocks with cache_control, in the order of the prompt.
	Breakpoints []Breakpoint
	// Stripped is the number of system blocks that were left out of the prompt because they are nonces: one
	// client begins its system prompt with a block that differs in each request, so no two of its prompts
	// would have a common prefix.
	Stripped int
}

// Breakpoint asks to keep the prefix of the prompt that ends with a block.
type Breakpoint struct {
	Message int // index in Messages; -1: the tools
	Bytes   int // of that message's Content, up to the end of the block
	TTL     time.Duration
}

// maxBreakpoints is the API's own limit.
const maxBreakpoints = 4

// Decode decodes the body of a request to /v1/messages. The error is a *conversation.Error. The result does
// not refer to body.
func Decode(body []byte, o Options) (*Request, error) { return decode(body, o, true) }

// DecodeCount decodes the body of a request to /v1/messages/count_tokens, which has the same fields; only
// max_tokens need not be given.
func DecodeCount(body []byte, o Options) (*Request, error) { return decode(body, o, false) }

func decode(body []byte, o Options, limited bool) (_ *Request, err error) {
	defer conversation.OfFault(&err)
	defer bail.Recover(&err)
	v := jsonbody.Parse(slices.Clone(body)) // a copy: tools and arguments go to the template as raw JSON
	r := newReading(o)
	r.body(v)
	if limited && r.MaxTokens == 0 && !r.NoOutput {
		r.Missing(param("max_tokens"))
	}
	if err := r.Offer(r.tools, r.wanted); err != nil {
		return nil, err
	}
	r.Ignored = r.Skipped
	return r.Request, nil
}

// Peeked holds what a proxy needs to route a request.
type Peeked struct {
	Request
	// Doubt says why the prompt may be a different one; nil if it is certain.
	Doubt error
}

// Peek decodes the body of a request for a proxy. It is lenient, because the worker judges the request: unknown
// fields and invalid values count as absent, and Doubt says why the prompt is uncertain. For a body that
// Decode accepts, Peek returns the same messages and options of the template without a doubt. The error, a
// *conversation.Error of status 400, means that no worker could read the body. The result refers to body.
func Peek(body []byte, o Options) (_ *Peeked, err error) {
	defer conversation.OfFault(&err)
	defer bail.Recover(&err)
	v := jsonbody.Parse(body)
	r := newReading(o)
	r.Lenient = true
	r.body(v)
	if r.wanted.None {
		r.Options.Tools = nil
	}
	p := &Peeked{Request: *r.Request}
	if p.Doubt = r.Doubt; r.Doubt != nil {
		p.Doubt = fmt.Errorf("anthropic: %w", r.Doubt)
	}
	return p, nil
}

// body reads the whole body v.
func (r *reading) body(v value) {
	for _, f := range r.Object(v, "an object") {
		set := fields[string(f.Name)]
		why, no := refused[string(f.Name)]
		switch {
		case set != nil:
			r.OfPrompt = ofPrompt[string(f.Name)]
			set(r, f.Value)
			r.OfPrompt = false
		case no && !r.Lenient && !empty(f.Raw):
			r.Fail(f, conversation.Unsupported, "%s is not supported: %s", f, why)
		case !no:
			r.Unknown("", f)
		}
	}
	r.OfPrompt = true
	r.assemble()
	r.OfPrompt = false
}

// empty reports whether a list or an object asks for nothing.
func empty(raw []byte) bool { return string(raw) == "[]" || string(raw) == "{}" }

// assemble joins the system prompt and the messages, and finds the breakpoints in them.
func (r *reading) assemble() {
	if len(r.turns) == 0 {
		r.Fail(param("messages"), "invalid_value", "messages is missing or empty, want at least one message")
	}
	r.Messages = append(r.system, r.turns...)
	r.final()
	joined := 0 // messages whose Content is set
	for i := range r.Messages {
		join(&r.Messages[i])
		joined++
	}
	if len(r.marks) > maxBreakpoints && !r.Lenient {
		r.Fail(r.marks[maxBreakpoints].at, "invalid_value", "there are %d blocks with cache_control, want at most %d", len(r.marks), maxBreakpoints)
	}
	for _, m := range r.marks {
		b := Breakpoint{Message: m.message, TTL: m.ttl}
		if m.message == lastMessage {
			b.Message, m.system, m.parts = joined-1, true, math.MaxInt
		}
		if !m.system && m.message >= 0 {
			b.Message += len(r.system)
		}
		if b.Message >= joined {
			continue // of a message that was left out
		}
		if b.Message >= 0 {
			b.Bytes = joinedBytes(&r.Messages[b.Message], m.parts)
		}
		r.Breakpoints = append(r.Breakpoints, b)
	}
	slices.SortStableFunc(r.Breakpoints, func(a, b Breakpoint) int {
		if a.Message != b.Message {
			return a.Message - b.Message
		}
		return a.Bytes - b.Bytes
	})
}

// final makes an assistant's message at the end the beginning of the answer.
func (r *reading) final() {
	r.Options.AddGenerationPrompt = true
	n := len(r.Messages)
	if n == 0 || r.Messages[n-1].Role != "assistant" {
		return
	}
	last := &r.Messages[n-1]
	switch {
	case len(last.ToolCalls) > 0:
		r.Fail(param("messages"), "invalid_value", "the last message has tool_use blocks, and no tool_result blocks follow")
	case blank(last) && n > 1:
		r.Messages = r.Messages[:n-1] // the answer begins where it would anyway
	default:
		r.ContinueFinal, r.Options.AddGenerationPrompt = true, false
	}
}

// blank reports whether a message has no text.
func blank(m *chat.Message) bool {
	for _, p := range m.Parts {
		if p.Text != "" {
			return false
		}
	}
	return m.Content == ""
}
