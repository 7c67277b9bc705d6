package gateway

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/coppice-llm/coppice/anthropic"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/ollama"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/openai/responses"
)

// wire describes the answers of an API, as far as the gateway reads and writes them.
type wire struct {
	stream string   // media type of streams
	mark   []byte   // each event has it once
	ends   [][]byte // the ends of an event; the first is the usual one
	// idle are the events that may come before the first token: a worker sends them while it computes a long prompt. Each has one of
	// these texts, and no other event has one.
	idle [][]byte
	// last reports whether b, which ends with a whole event, ends the stream.
	last func(b []byte) bool
	// cached stands before the number of cached prompt tokens. earlyCached says that an earlier event of a stream has a
	// number too, before what is cached is known.
	cached      []byte
	earlyCached bool
	fault       func(dst []byte, e *conversation.Error) []byte // the body of an error
	// event appends the event that ends a stream with an error, after this number of other events.
	event func(dst []byte, e *conversation.Error, before int) []byte
}

var eventEnd, eventEndCR, lineEnd = []byte("\n\n"), []byte("\r\n\r\n"), []byte("\n")

// endsWith returns a function that reports whether b ends with event, whatever ends its lines.
func endsWith(event string) func(b []byte) bool {
	return func(b []byte) bool { return bytes.HasSuffix(bytes.TrimRight(b, "\r\n"), []byte(event)) }
}

var openaiWire = wire{
	stream: "text/event-stream", mark: []byte("data: "), ends: [][]byte{eventEnd, eventEndCR}, last: endsWith("data: [DONE]"), cached: []byte(`"cached_tokens":`),
	fault: openai.AppendError,
	event: func(dst []byte, e *conversation.Error, _ int) []byte {
		return append(openai.AppendError(append(dst, "data: "...), e), eventEnd...)
	},
}

var messagesWire = wire{
	idle:   [][]byte{[]byte(`data: {"type":"message_start"`), []byte(`data: {"type":"ping"`)},
	stream: openaiWire.stream, mark: openaiWire.mark, ends: openaiWire.ends, last: endsWith(`data: {"type":"message_stop"}`), cached: []byte(`"cache_read_input_tokens":`), earlyCached: true,
	fault: anthropic.AppendError,
	event: func(dst []byte, e *conversation.Error, _ int) []byte { return anthropic.AppendErrorEvent(dst, e) },
}

var responsesWire = wire{
	idle:   [][]byte{[]byte("event: response.created\ndata: "), []byte("event: response.in_progress\ndata: ")},
	stream: openaiWire.stream, mark: openaiWire.mark, ends: openaiWire.ends, last: endsResponse, cached: openaiWire.cached,
	fault: openai.AppendError, event: responses.AppendErrorEvent,
}

// endsResponse reports whether b, whole events, ends with one that has the whole response.
func endsResponse(b []byte) bool {
	b = bytes.TrimRight(b, "\r\n")
	last := bytes.TrimLeft(b[max(bytes.LastIndex(b, eventEnd), bytes.LastIndex(b, eventEndCR), 0):], "\r\n")
	for _, name := range [...]string{"completed", "incomplete", "failed"} {
		if bytes.HasPrefix(last, []byte("event: response."+name)) {
			return true
		}
	}
	return false
}

var ollamaWire = wire{
	idle:   [][]byte{[]byte(`"content":""},"done":false}`), []byte(`"response":"","done":false}`)},
	stream: ollama.ContentType, mark: lineEnd, ends: [][]byte{lineEnd}, last: ollama.EndsStream, cached: []byte(`"prompt_cached_count":`),
	fault: ollama.AppendError,
	event: func(dst []byte, e *conversation.Error, _ int) []byte { return append(ollama.AppendError(dst, e), '\n') },
}

// wireOf returns the API of a request.
func wireOf(r *http.Request) *wire {
	switch {
	case strings.HasPrefix(r.URL.Path, ollama.Root):
		return &ollamaWire
	case anthropic.Speaks(r):
		return &messagesWire
	case r.URL.Path == responses.Path:
		return &responsesWire
	}
	return &openaiWire
}

// idles reports whether b, with this number of events, has none but those that come before the first token, or only a comment.
func (w *wire) idles(b []byte, events int) bool {
	idle := 0
	for _, mark := range w.idle {
		idle += bytes.Count(b, mark)
	}
	return idle == events && (idle > 0 || bytes.HasPrefix(b, comment))
}

// comment begins a comment in a stream of server-sent events.
var comment = []byte(":")

// eventsEnd returns the index in b after the last complete event, 0 if there is none.
func (w *wire) eventsEnd(b []byte) (end int) {
	if bytes.HasSuffix(b, w.ends[0]) {
		return len(b)
	}
	for _, mark := range w.ends {
		if i := bytes.LastIndex(b, mark); i >= 0 {
			end = max(end, i+len(mark))
		}
	}
	return end
}
