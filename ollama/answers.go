package ollama

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsontext"
	"github.com/coppice-llm/coppice/kv"
)

// Answers is the form of an answer.
type Answers uint8

// Values of Answers.
const (
	ChatAnswer Answers = iota
	GenerateAnswer
	// RawAnswer is GenerateAnswer without the tokens of the conversation.
	RawAnswer
)

// ContentType is the media type of a stream: a JSON object per line.
const ContentType = "application/x-ndjson"

// maxGivenContext is the most tokens of a conversation that an answer of /api/generate gives back; a longer
// one is left out.
const maxGivenContext = 1 << 16

// Wire is the form of the answer to one request.
type Wire struct {
	form  Answers
	now   func() time.Time
	begun time.Time
}

var _ conversation.Wire = (*Wire)(nil)

// NewWire returns the form of the answer to a request that arrived at begun. now is the clock for created_at
// and total_duration.
func NewWire(form Answers, begun time.Time, now func() time.Time) *Wire {
	return &Wire{form: form, now: now, begun: begun}
}

// ContentType implements conversation.Wire.
func (w *Wire) ContentType() string { return ContentType }

// Stream implements conversation.Wire.
func (w *Wire) Stream() conversation.Writer { return &stream{wire: w} }

// stream writes a streamed answer.
type stream struct {
	wire   *Wire
	model  string
	call   conversation.Item // the call whose arguments are arriving; CallID "": none
	calls  int               // complete ones
	scores []conversation.Score
}

// Begin implements conversation.Writer. Nothing comes before the first text.
func (s *stream) Begin(dst []byte, h *conversation.Head) []byte {
	s.model = h.Model
	return dst
}

// Event implements conversation.Writer. A call is one event, with all its arguments.
func (s *stream) Event(dst []byte, e conversation.Event) []byte {
	switch e.Kind {
	case conversation.Scores:
		s.scores = append(s.scores, e.Scores...)
	case conversation.Arguments:
		s.call.Arguments = append(s.call.Arguments, e.Text...)
	case conversation.Call:
		dst = s.endCall(dst)
		s.call = conversation.Item{CallID: e.CallID, Name: e.Text, Arguments: s.call.Arguments[:0]}
	case conversation.Thought:
		dst = s.line(s.endCall(dst), said{thinking: e.Text})
	default:
		dst = s.line(s.endCall(dst), said{text: e.Text})
	}
	return dst
}

// Ping implements conversation.Writer: a line without text. Lines of JSON have no comments.
func (s *stream) Ping(dst []byte) []byte {
	return append(s.wire.appendSaid(dst, s.model, &said{}), ",\"done\":false}\n"...)
}

// endCall writes the call whose arguments have arrived. A call that the answer was cut within has no arguments
// that are JSON, and is left out.
func (s *stream) endCall(dst []byte) []byte {
	if s.call.CallID == "" {
		return dst
	}
	if arguments, ok := whole(s.call.Arguments); ok {
		s.call.Arguments = arguments
		dst = s.line(dst, said{calls: []conversation.Item{s.call}, from: s.calls})
		s.calls++
	}
	s.call.CallID = ""
	return dst
}

// line writes a line of a stream that goes on.
func (s *stream) line(dst []byte, what said) []byte {
	what.scores, s.scores = s.scores, s.scores[:0]
	dst = s.wire.appendSaid(dst, s.model, &what)
	return append(dst, ",\"done\":false}\n"...)
}

// End implements conversation.Writer.
func (s *stream) End(dst []byte, e *conversation.Ending) []byte {
	dst = s.endCall(dst)
	dst = s.wire.appendSaid(dst, s.model, &said{scores: s.scores})
	return append(s.wire.appendEnding(dst, e), '\n')
}

// Fault implements conversation.Writer.
func (s *stream) Fault(dst []byte, e *conversation.Error) []byte {
	return append(AppendError(dst, e), '\n')
}

// Whole implements conversation.Wire.
func (w *Wire) Whole(dst []byte, a *conversation.Answer) []byte {
	all := said{scores: a.Scores}
	var text, thinking []byte
	for _, item := range a.Items {
		switch item.Kind {
		case conversation.Text:
			text = append(text, item.Text...)
		case conversation.Thought:
			thinking = append(thinking, item.Text...)
		case conversation.Call:
			if arguments, ok := whole(item.Arguments); ok {
				item.Arguments = arguments
				all.calls = append(all.calls, item)
			}
		}
	}
	all.text, all.thinking = string(text), string(thinking)
	return w.appendEnding(w.appendSaid(dst, a.Model, &all), &a.Ending)
}

// whole returns the arguments of a call if they are a JSON object; none are an empty one.
func whole(arguments []byte) ([]byte, bool) {
	if len(arguments) == 0 {
		return []byte("{}"), true
	}
	return arguments, arguments[0] == '{' && json.Valid(arguments)
}

// said holds the text, the calls and the scores of one object of an answer.
type said struct {
	text, thinking string
	calls          []conversation.Item
	from           int // index of the first of calls
	scores         []conversation.Score
}

// appendSaid writes the fields before done, and leaves the object open.
func (w *Wire) appendSaid(dst []byte, model string, what *said) []byte {
	dst = append(dst, `{"model":`...)
	dst = jsontext.AppendString(dst, model)
	dst = append(dst, `,"created_at":"`...)
	dst = w.now().UTC().AppendFormat(dst, time.RFC3339Nano)
	if w.form == ChatAnswer {
		dst = append(dst, `","message":{"role":"assistant","content":`...)
	} else {
		dst = append(dst, `","response":`...)
	}
	dst = jsontext.AppendString(dst, what.text)
	if what.thinking != "" {
		dst = append(dst, `,"thinking":`...)
		dst = jsontext.AppendString(dst, what.thinking)
	}
	if w.form == ChatAnswer {
		if len(what.calls) > 0 {
			dst = append(dst, `,"tool_calls":`...)
			dst = jsontext.AppendArray(dst, len(what.calls), func(dst []byte, i int) []byte { return appendCall(dst, what.from+i, &what.calls[i]) })
		}
		dst = append(dst, '}')
	}
	if len(what.scores) > 0 {
		dst = jsontext.AppendList(append(dst, `,"logprobs":`...), what.scores, appendScored)
	}
	return dst
}

func appendCall(dst []byte, index int, c *conversation.Item) []byte {
	dst = append(dst, `{"id":`...)
	dst = jsontext.AppendString(dst, "call_"+c.CallID)
	dst = append(dst, `,"function":{"index":`...)
	dst = jsontext.AppendInt(dst, index)
	dst = append(dst, `,"name":`...)
	dst = jsontext.AppendString(dst, c.Name)
	dst = append(dst, `,"arguments":`...)
	return append(append(dst, c.Arguments...), "}}"...)
}

// appendScored writes a token with its log-probability and the most probable tokens at its position.
func appendScored(dst []byte, s conversation.Score) []byte {
	dst = conversation.AppendScore(dst, &s)
	if len(s.Top) > 0 {
		dst = jsontext.AppendList(append(dst, `,"top_logprobs":`...), s.Top, func(dst []byte, t conversation.Score) []byte { return append(conversation.AppendScore(dst, &t), '}') })
	}
	return append(dst, '}')
}

// appendEnding writes the fields from done on, and closes the object. prompt_eval_count is the length of the
// prompt, as in Ollama, whose clients take it for that; prompt_cached_count says how much of the prompt was
// not computed, because it was in the cache. load_duration is the time in the queue, because the model
// itself is always loaded.
func (w *Wire) appendEnding(dst []byte, e *conversation.Ending) []byte {
	reason := "stop"
	if e.Reason == conversation.Full {
		reason = "length"
	}
	dst = append(dst, `,"done":true,"done_reason":"`...)
	dst = append(append(dst, reason...), '"')
	if w.form == GenerateAnswer && len(e.Tokens) > 0 && len(e.Tokens) <= maxGivenContext {
		dst = jsontext.AppendList(append(dst, `,"context":`...), e.Tokens, func(dst []byte, t kv.Token) []byte { return jsontext.AppendInt(dst, t) })
	}
	t := &e.Times
	for _, f := range []struct {
		name string
		n    int64
	}{
		{"total_duration", int64(w.now().Sub(w.begun))},
		{"load_duration", int64(t.Queued)},
		{"prompt_eval_count", int64(e.Usage.PromptTokens)},
		{"prompt_cached_count", int64(e.Usage.CachedTokens)},
		{"prompt_eval_duration", int64(max(t.FirstToken-t.Queued, 0))},
		{"eval_count", int64(e.Usage.CompletionTokens)},
		{"eval_duration", int64(max(t.Total-t.FirstToken, 0))},
	} {
		dst = append(append(append(dst, `,"`...), f.name...), `":`...)
		dst = jsontext.AppendInt(dst, f.n)
	}
	return append(dst, '}')
}

// AppendLoaded writes the answer to a request that asks only to load the model, or with unload to unload it.
func (w *Wire) AppendLoaded(dst []byte, model string, unload bool) []byte {
	reason := "load"
	if unload {
		reason = "unload"
	}
	dst = w.appendSaid(dst, model, &said{})
	return append(append(append(dst, `,"done":true,"done_reason":"`...), reason...), `"}`...)
}

// AppendError writes an error: {"error": "…"}.
func AppendError(dst []byte, e *conversation.Error) []byte {
	return append(jsontext.AppendString(append(dst, `{"error":`...), e.Message), '}')
}

// Root is the path that all endpoints are under.
const Root = "/api/"

// EndsStream reports whether lines, which are whole lines of a stream, have its last one. A text can't be taken
// for it, as quotes within a string are escaped.
func EndsStream(lines []byte) bool {
	lines = bytes.TrimRight(lines, "\r\n")
	return bytes.Contains(lines[bytes.LastIndexByte(lines, '\n')+1:], []byte(`"done":true`))
}
