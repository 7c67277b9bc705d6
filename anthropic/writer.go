package anthropic

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsontext"
)

// Wire writes the answer to a request.
type Wire struct {
	// Covered is the number of prompt tokens that each of the request's breakpoints covers, in ascending order,
	// and TTLs are the times of the same breakpoints. They must be set before the answer ends.
	Covered []int
	TTLs    []time.Duration
	// Window says that the model's context ends the answer before max_tokens.
	Window bool
}

// ContentType is the media type of a stream.
func (w *Wire) ContentType() string { return "text/event-stream" }

// Stream returns a writer of a streamed answer.
func (w *Wire) Stream() conversation.Writer { return &stream{wire: w, open: none} }

// signature stands where Anthropic's API has a signature of the reasoning. Clients leave out reasoning without one
// when they send an answer back; this server does not read it.
const signature = "bm90IHNpZ25lZA==" // "not signed", in base64

// appendMessage writes the fields of a message up to its content.
func appendMessage(dst []byte, h *conversation.Head) []byte {
	dst = append(dst, `{"id":"msg_`...)
	dst = append(dst, h.ID...)
	dst = append(dst, `","type":"message","role":"assistant","model":`...)
	dst = jsontext.AppendString(dst, h.Model)
	return append(dst, `,"content":[`...)
}

// appendStop writes stop_reason and stop_sequence.
func (w *Wire) appendStop(dst []byte, e *conversation.Ending) []byte {
	reason := [...]string{conversation.Stopped: "end_turn", conversation.StopString: "stop_sequence", conversation.Full: "max_tokens", conversation.Called: "tool_use"}[e.Reason]
	if e.Reason == conversation.Full && w.Window {
		reason = "model_context_window_exceeded"
	}
	dst = append(dst, `"stop_reason":"`...)
	dst = append(dst, reason...)
	dst = append(dst, `","stop_sequence":`...)
	return jsontext.AppendOptional(dst, e.StopString)
}

// appendUsage writes the token counts. input_tokens are those of the prompt that were neither read from the
// cache nor are covered by a breakpoint.
func (w *Wire) appendUsage(dst []byte, u *conversation.Usage) []byte {
	created, hour := 0, 0
	at := u.CachedTokens
	for i, n := range w.Covered {
		if n = min(n, u.PromptTokens); n > at {
			created += n - at
			if w.TTLs[i] >= time.Hour {
				hour += n - at
			}
			at = n
		}
	}
	dst = append(dst, `{"input_tokens":`...)
	dst = jsontext.AppendInt(dst, u.PromptTokens-u.CachedTokens-created)
	dst = append(dst, `,"cache_creation_input_tokens":`...)
	dst = jsontext.AppendInt(dst, created)
	dst = append(dst, `,"cache_read_input_tokens":`...)
	dst = jsontext.AppendInt(dst, u.CachedTokens)
	dst = append(dst, `,"cache_creation":{"ephemeral_5m_input_tokens":`...)
	dst = jsontext.AppendInt(dst, created-hour)
	dst = append(dst, `,"ephemeral_1h_input_tokens":`...)
	dst = jsontext.AppendInt(dst, hour)
	dst = append(dst, `},"output_tokens":`...)
	dst = jsontext.AppendInt(dst, u.CompletionTokens)
	return append(dst, `,"service_tier":"standard"}`...)
}

// Whole writes an answer that is not streamed.
func (w *Wire) Whole(dst []byte, a *conversation.Answer) []byte {
	dst = appendMessage(dst, &a.Head)
	for i := range a.Items {
		if i > 0 {
			dst = append(dst, ',')
		}
		it := &a.Items[i]
		switch it.Kind {
		case conversation.Thought:
			dst = append(dst, `{"type":"thinking","thinking":`...)
			dst = jsontext.AppendString(dst, string(it.Text))
			dst = append(dst, `,"signature":"`+signature+`"}`...)
		case conversation.Call:
			dst = appendCall(dst, it.CallID, it.Name)
			if arguments := it.Arguments; json.Valid(arguments) && arguments[0] == '{' {
				dst = append(dst, arguments...)
			} else {
				dst = append(dst, "{}"...) // the answer was cut within them
			}
			dst = append(dst, '}')
		default:
			dst = append(dst, `{"type":"text","text":`...)
			dst = append(jsontext.AppendString(dst, string(it.Text)), '}')
		}
	}
	dst = append(dst, `],`...)
	dst = w.appendStop(dst, &a.Ending)
	dst = append(dst, `,"usage":`...)
	return append(w.appendUsage(dst, &a.Ending.Usage), '}')
}

// appendCall writes a call up to its input.
func appendCall(dst []byte, id, name string) []byte {
	dst = append(dst, `{"type":"tool_use","id":"toolu_`...)
	dst = append(dst, id...)
	dst = append(dst, `","name":`...)
	dst = jsontext.AppendString(dst, name)
	return append(dst, `,"input":`...)
}

// none is the kind of the open block if there is none.
const none conversation.Kind = 0xff

// stream writes an answer as server-sent events.
type stream struct {
	wire  *Wire
	open  conversation.Kind // of the open block
	index int               // of the open block, or of the next one
}

// event begins an event.
func event(dst []byte, name string) []byte {
	dst = append(dst, "event: "...)
	dst = append(dst, name...)
	dst = append(dst, "\ndata: {\"type\":\""...)
	dst = append(dst, name...)
	return append(dst, '"')
}

const eventEnd = "}\n\n"

// Begin writes message_start. What is cached is not known yet: the last event has the final counts.
func (s *stream) Begin(dst []byte, h *conversation.Head) []byte {
	dst = event(dst, "message_start")
	dst = append(dst, `,"message":`...)
	dst = appendMessage(dst, h)
	dst = append(dst, `],"stop_reason":null,"stop_sequence":null,"usage":`...)
	early := Wire{}
	dst = early.appendUsage(dst, &conversation.Usage{PromptTokens: h.PromptTokens})
	dst = append(append(dst, '}'), eventEnd...)
	return s.Ping(dst)
}

// Ping writes ping, which clients leave out.
func (s *stream) Ping(dst []byte) []byte { return append(event(dst, "ping"), eventEnd...) }

// Event writes a part of the answer. A part of another kind than the last one begins a block.
func (s *stream) Event(dst []byte, e conversation.Event) []byte {
	kind := e.Kind
	if kind == conversation.Arguments {
		return s.delta(dst, "input_json_delta", "partial_json", e.Text)
	}
	if kind != s.open || kind == conversation.Call {
		dst = s.begin(s.close(dst), e)
	}
	switch kind {
	case conversation.Text:
		return s.delta(dst, "text_delta", "text", e.Text)
	case conversation.Thought:
		return s.delta(dst, "thinking_delta", "thinking", e.Text)
	}
	return dst
}

func (s *stream) at(dst []byte, name string) []byte {
	dst = append(event(dst, name), `,"index":`...)
	return strconv.AppendInt(dst, int64(s.index), 10)
}

func (s *stream) delta(dst []byte, kind, field, text string) []byte {
	dst = append(s.at(dst, "content_block_delta"), `,"delta":{"type":"`...)
	dst = append(dst, kind...)
	dst = append(dst, `","`...)
	dst = append(dst, field...)
	dst = append(dst, `":`...)
	dst = jsontext.AppendString(dst, text)
	return append(append(dst, '}'), eventEnd...)
}

// begin begins the block of an event.
func (s *stream) begin(dst []byte, e conversation.Event) []byte {
	s.open = e.Kind
	dst = append(s.at(dst, "content_block_start"), `,"content_block":`...)
	switch e.Kind {
	case conversation.Call:
		dst = append(appendCall(dst, e.CallID, e.Text), "{}}"...)
	case conversation.Thought:
		dst = append(dst, `{"type":"thinking","thinking":"","signature":""}`...)
	default:
		dst = append(dst, `{"type":"text","text":""}`...)
	}
	return append(dst, eventEnd...)
}

// close ends the open block.
func (s *stream) close(dst []byte) []byte {
	if s.open == none {
		return dst
	}
	if s.open == conversation.Thought {
		dst = s.delta(dst, "signature_delta", "signature", signature)
	}
	dst = append(s.at(dst, "content_block_stop"), eventEnd...)
	s.open = none
	s.index++
	return dst
}

// End writes the reason and the final counts.
func (s *stream) End(dst []byte, e *conversation.Ending) []byte {
	dst = append(event(s.close(dst), "message_delta"), `,"delta":{`...)
	dst = s.wire.appendStop(dst, e)
	dst = append(dst, `},"usage":`...)
	dst = append(s.wire.appendUsage(dst, &e.Usage), eventEnd...)
	return append(event(dst, "message_stop"), eventEnd...)
}

// Fault ends the stream with an error.
func (s *stream) Fault(dst []byte, e *conversation.Error) []byte { return AppendErrorEvent(dst, e) }
