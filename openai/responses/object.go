package responses

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsontext"
	"github.com/coppice-llm/coppice/openai"
)

// Wire is the form of the response to one request.
type Wire struct {
	ask    *Ask
	worker uint64
	keep   func(id string, s *Stored)
}

// NewWire returns the form of the response to a. worker is part of its id, see [WorkerOf]. keep gets a response to be stored,
// before the client gets the end of it; nil: nothing is stored.
func NewWire(a *Ask, worker uint64, keep func(id string, s *Stored)) *Wire {
	return &Wire{ask: a, worker: worker, keep: keep}
}

// ContentType is the media type of a stream.
func (w *Wire) ContentType() string { return "text/event-stream" }

// Stream returns the writer of a streamed response.
func (w *Wire) Stream() conversation.Writer { return &stream{wire: w} }

// Whole appends the response.
func (w *Wire) Whole(dst []byte, a *conversation.Answer) []byte {
	a.Items = spoken(a.Items, a.Ending.Reason)
	o := object{Wire: w, Head: &a.Head, items: a.Items, ending: &a.Ending}
	return w.store(dst, &o)
}

// store appends the finished response o, and gives it to be stored.
func (w *Wire) store(dst []byte, o *object) []byte {
	from := len(dst)
	dst = o.appendTo(dst)
	if w.keep != nil && w.ask.Store {
		digits := digitsOf(o.ID, w.worker)
		input := []byte{'['}
		for i := range w.ask.items {
			if i > 0 {
				input = append(input, ',')
			}
			input = w.ask.items[i].appendTo(input, fmt.Sprintf("msg_%si%d", digits, i))
		}
		w.keep(idPrefix+digits, &Stored{
			Previous: w.ask.Previous, Session: w.ask.Session, Input: bytes.ToValidUTF8(append(input, ']'), []byte("\ufffd")), Response: append([]byte(nil), dst[from:]...),
		})
	}
	return dst
}

// spoken adds an empty message to an answer without output: clients wait for one.
func spoken(items []conversation.Item, why conversation.Reason) []conversation.Item {
	if n := len(items); why != conversation.Full && (n == 0 || items[n-1].Kind == conversation.Thought) {
		return append(items, conversation.Item{Kind: conversation.Text})
	}
	return items
}

// object is a response, complete or not yet.
type object struct {
	*Wire
	*conversation.Head
	items  []conversation.Item
	ending *conversation.Ending // nil until it has ended
	fault  *conversation.Error  // it has failed
}

// status returns the state of the response.
func (o *object) status() string {
	switch {
	case o.fault != nil:
		return "failed"
	case o.ending == nil:
		return "in_progress"
	case o.ending.Reason == conversation.Full:
		return "incomplete"
	}
	return "completed"
}

// members writes the members of an object.
type members []byte

func (m *members) raw(name, json string) {
	*m = append(jsontext.AppendString(append(*m, ','), name), ':')
	*m = append(*m, json...)
}

func (m *members) text(name, s string) {
	m.raw(name, "")
	*m = jsontext.AppendString(*m, s)
}

// appendTo writes the response with all members that the types of OpenAI's clients have.
func (o *object) appendTo(dst []byte) []byte {
	a, s := o.ask, &o.ask.shown
	m := members(append(dst, `{"object":"response"`...))
	m.text("id", idPrefix+digitsOf(o.ID, o.worker))
	m.raw("created_at", strconv.FormatInt(o.Created, 10))
	m.text("status", o.status())
	m.raw("background", "false")
	m.raw("error", "null")
	if o.fault != nil {
		m = m[:len(m)-len("null")]
		m = appendFault(m, o.fault)
	}
	m.raw("incomplete_details", "null")
	if o.status() == "incomplete" {
		m = append(m[:len(m)-len("null")], `{"reason":"max_output_tokens"}`...)
	}
	m.raw("instructions", optional(s.instructions))
	m.raw("max_output_tokens", number(int64(a.MaxTokens)))
	m.raw("max_tool_calls", number(s.toolCalls))
	m.text("model", o.Model)
	m.raw("output", "")
	m = jsontext.AppendArray(m, len(o.items), func(dst []byte, i int) []byte {
		status := "completed"
		if i == len(o.items)-1 && o.status() != "completed" {
			status = "incomplete"
		}
		return o.appendItem(dst, i, &o.items[i], status)
	})
	m.raw("parallel_tool_calls", strconv.FormatBool(s.parallel))
	m.raw("previous_response_id", "")
	m = jsontext.AppendOptional(m, a.Previous)
	m.raw("prompt_cache_key", optional(s.cacheKey))
	m.raw("prompt_cache_retention", optional(s.retention))
	m.raw("reasoning", `{"effort":`+optional(s.effort)+`,"summary":`)
	m = append(jsontext.AppendOptional(m, s.summary), '}')
	m.raw("safety_identifier", optional(s.safety))
	m.raw("service_tier", `"default"`)
	m.raw("store", strconv.FormatBool(a.Store && o.keep != nil))
	m.raw("temperature", "")
	m = jsontext.AppendFloat(m, a.Sampling.Temperature)
	m.raw("text", `{"format":`+orElse(s.format, `{"type":"text"}`)+`,"verbosity":`+orElse(s.verbosity, `"medium"`)+`}`)
	m.raw("tool_choice", orElse(s.choice, `"auto"`))
	m.raw("tools", orElse(s.tools, "[]"))
	m.raw("top_logprobs", strconv.Itoa(a.TopLogprobs))
	m.raw("top_p", "1")
	if p := a.Sampling.TopP; p > 0 {
		m = jsontext.AppendFloat(m[:len(m)-1], p)
	}
	m.raw("truncation", `"disabled"`)
	m.raw("usage", "null")
	if o.ending != nil {
		m = appendUsage(m[:len(m)-len("null")], openai.Usage(o.ending.Usage))
	}
	m.raw("user", optional(s.user))
	m.raw("metadata", orElse(s.metadata, "{}"))
	return append(m, '}')
}

func orElse(raw []byte, absent string) string {
	if raw == nil {
		return absent
	}
	return string(raw)
}

// appendFault writes the error of a response that has failed. The API's types have few codes: others are server_error.
func appendFault(dst []byte, e *conversation.Error) []byte {
	code := "server_error"
	if e.Status == http.StatusTooManyRequests {
		code = "rate_limit_exceeded"
	} else if e.Status < http.StatusInternalServerError {
		code = "invalid_prompt"
	}
	dst = append(append(append(dst, `{"code":"`...), code...), `","message":`...)
	return append(jsontext.AppendString(dst, e.Message), '}')
}

// appendUsage writes the token counts. Reasoning is not counted apart, and nothing is billed for being written to the cache.
func appendUsage(dst []byte, u openai.Usage) []byte {
	dst = jsontext.AppendInt(append(dst, `{"input_tokens":`...), u.PromptTokens)
	dst = jsontext.AppendInt(append(dst, `,"input_tokens_details":{"cached_tokens":`...), u.CachedTokens)
	dst = u.AppendTiers(dst)
	dst = jsontext.AppendInt(append(dst, `,"cache_write_tokens":0},"output_tokens":`...), u.CompletionTokens)
	dst = append(dst, `,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":`...)
	return append(jsontext.AppendInt(dst, u.PromptTokens+u.CompletionTokens), '}')
}

// itemPrefixes are the prefixes of the ids of items.
var itemPrefixes = [...]string{conversation.Text: "msg_", conversation.Thought: "rs_", conversation.Call: "fc_"}

// itemID returns the id of output item i.
func (o *object) itemID(i int, kind conversation.Kind) string {
	return fmt.Sprintf("%s%s%02x", itemPrefixes[kind], digitsOf(o.ID, o.worker), i)
}

// appendItem writes output item i.
func (o *object) appendItem(dst []byte, i int, it *conversation.Item, status string) []byte {
	m := members(append(dst, `{"id":`...))
	m = jsontext.AppendString(m, o.itemID(i, it.Kind))
	switch it.Kind {
	case conversation.Call:
		m.raw("type", `"function_call"`)
		m.text("status", status)
		m.text("call_id", callID(it.CallID))
		m.text("name", it.Name)
		m.text("arguments", string(it.Arguments))
	case conversation.Thought:
		m.raw("type", `"reasoning"`)
		m.text("status", status)
		list, other := "content", "summary"
		if o.ask.shown.summary != "" {
			list, other = other, list
		}
		m.raw(other, "[]")
		m.raw(list, "[")
		if len(it.Text) > 0 {
			m = o.appendPart(m, it)
		}
		m = append(m, ']')
		m.raw("encrypted_content", "null")
	default:
		m.raw("type", `"message"`)
		m.text("status", status)
		m.raw("role", `"assistant"`)
		m.raw("content", "[")
		if len(it.Text) > 0 || status != "in_progress" {
			m = o.appendPart(m, it)
		}
		m = append(m, ']')
	}
	return append(m, '}')
}

// appendPart writes the only part of a message or of reasoning, which goes into the summary if the request asks for one.
func (o *object) appendPart(dst []byte, it *conversation.Item) []byte {
	switch {
	case it.Kind != conversation.Thought:
		dst = append(appendScores(append(dst, `{"type":"output_text","annotations":[],`...), it.Scores), `,"text":`...)
	case o.ask.shown.summary != "":
		dst = append(dst, `{"type":"summary_text","text":`...)
	default:
		dst = append(dst, `{"type":"reasoning_text","text":`...)
	}
	return append(jsontext.AppendString(dst, string(it.Text)), '}')
}

// appendScores writes the member logprobs.
func appendScores(dst []byte, all []conversation.Score) []byte {
	return jsontext.AppendList(append(dst, `"logprobs":`...), all, func(dst []byte, s conversation.Score) []byte {
		dst = append(conversation.AppendScore(dst, &s), `,"top_logprobs":`...)
		dst = jsontext.AppendList(dst, s.Top, func(dst []byte, t conversation.Score) []byte { return append(conversation.AppendScore(dst, &t), '}') })
		return append(dst, '}')
	})
}

// callID returns the id of a call as clients see it.
func callID(id string) string { return "call_" + id }
