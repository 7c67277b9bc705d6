package responses

import (
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsontext"
	"github.com/coppice-llm/coppice/openai"
)

// stream writes a response as server-sent events. Each has a number, and the response has all that the events said at its end.
type stream struct {
	wire   *Wire
	number int // of the next event
	all    conversation.Answer
	scored int // scores of the last item that were sent
	object object
}

// event writes an event whose further members are in the text more: `"delta":"a"`.
func (s *stream) event(dst []byte, kind string, more func(dst []byte) []byte) []byte {
	dst = append(append(dst, "event: "...), kind...)
	dst = append(append(append(dst, "\ndata: {\"type\":\""...), kind...), `","sequence_number":`...)
	dst = append(jsontext.AppendInt(dst, s.number), ',')
	s.number++
	return append(more(dst), "}\n\n"...)
}

// whole writes an event with the response as it is now.
func (s *stream) whole(dst []byte, kind string) []byte {
	return s.event(dst, kind, func(dst []byte) []byte { return s.object.appendTo(append(dst, `"response":`...)) })
}

// Begin writes the events before the output.
func (s *stream) Begin(dst []byte, h *conversation.Head) []byte {
	s.all.Head = *h
	s.object = object{Wire: s.wire, Head: &s.all.Head}
	return s.whole(s.whole(dst, "response.created"), "response.in_progress")
}

// Event writes the events of a part of the output.
func (s *stream) Event(dst []byte, e conversation.Event) []byte {
	if e.Kind == conversation.Scores {
		s.all.Add(e)
		return dst
	}
	before := len(s.all.Items)
	if before > 0 && (e.Kind == conversation.Call || e.Kind != conversation.Arguments && s.all.Items[before-1].Kind != e.Kind) {
		dst = s.close(dst, "completed")
	}
	s.all.Add(e)
	if len(s.all.Items) > before {
		dst = s.open(dst)
	}
	if e.Kind == conversation.Call {
		return dst
	}
	scored := s.scored
	if len(s.all.Items) > before {
		scored = 0
	}
	s.scored = len(s.last().Scores)
	return s.inItem(dst, s.names().delta, func(dst []byte) []byte {
		dst = jsontext.AppendString(append(dst, `"delta":`...), e.Text)
		if e.Kind == conversation.Text {
			dst = appendScores(append(dst, ','), s.last().Scores[scored:])
		}
		return dst
	})
}

// RepeatsScores implements conversation.Repeats.
func (s *stream) RepeatsScores() bool { return s.wire.ask.Logprobs }

// Ping writes a comment, which clients leave out.
func (s *stream) Ping(dst []byte) []byte { return append(dst, openai.Ping...) }

// names are the names of the events of the last item; "" for those that it has not.
type names struct{ part, delta, done, index string }

var (
	textNames    = names{"response.content_part", "response.output_text.delta", "response.output_text.done", "content_index"}
	thoughtNames = names{"response.content_part", "response.reasoning_text.delta", "response.reasoning_text.done", "content_index"}
	summaryNames = names{"response.reasoning_summary_part", "response.reasoning_summary_text.delta", "response.reasoning_summary_text.done", "summary_index"}
	callNames    = names{"", "response.function_call_arguments.delta", "response.function_call_arguments.done", ""}
)

func (s *stream) names() *names {
	switch kind := s.last().Kind; {
	case kind == conversation.Call:
		return &callNames
	case kind == conversation.Text:
		return &textNames
	case s.wire.ask.shown.summary != "":
		return &summaryNames
	}
	return &thoughtNames
}

// last returns the item that the events are of.
func (s *stream) last() *conversation.Item { return &s.all.Items[len(s.all.Items)-1] }

// inItem writes an event of the last item, or of its only part.
func (s *stream) inItem(dst []byte, kind string, more func(dst []byte) []byte) []byte {
	return s.event(dst, kind, func(dst []byte) []byte {
		n := len(s.all.Items) - 1
		dst = jsontext.AppendString(append(dst, `"item_id":`...), s.object.itemID(n, s.last().Kind))
		dst = jsontext.AppendInt(append(dst, `,"output_index":`...), n)
		if index := s.names().index; index != "" {
			dst = append(append(append(dst, `,"`...), index...), `":0`...)
		}
		return more(append(dst, ','))
	})
}

// item writes an event with the last item.
func (s *stream) item(dst []byte, kind string, it *conversation.Item, status string) []byte {
	return s.event(dst, kind, func(dst []byte) []byte {
		n := len(s.all.Items) - 1
		dst = jsontext.AppendInt(append(dst, `"output_index":`...), n)
		return s.object.appendItem(append(dst, `,"item":`...), n, it, status)
	})
}

// part writes an event with the part of the last item.
func (s *stream) part(dst []byte, kind string, it *conversation.Item) []byte {
	return s.inItem(dst, kind, func(dst []byte) []byte { return s.object.appendPart(append(dst, `"part":`...), it) })
}

// open writes the beginning of the last item.
func (s *stream) open(dst []byte) []byte {
	it := s.last()
	dst = s.item(dst, "response.output_item.added", &conversation.Item{Kind: it.Kind, CallID: it.CallID, Name: it.Name}, "in_progress")
	if name := s.names().part; name != "" {
		dst = s.part(dst, name+".added", &conversation.Item{Kind: it.Kind})
	}
	return dst
}

// close writes the end of the last item.
func (s *stream) close(dst []byte, status string) []byte {
	it, names := s.last(), s.names()
	dst = s.inItem(dst, names.done, func(dst []byte) []byte {
		switch it.Kind {
		case conversation.Call:
			dst = jsontext.AppendString(append(dst, `"name":`...), it.Name)
			return jsontext.AppendString(append(dst, `,"arguments":`...), string(it.Arguments))
		case conversation.Text:
			dst = append(appendScores(dst, it.Scores), ',')
		}
		return jsontext.AppendString(append(dst, `"text":`...), string(it.Text))
	})
	if names.part != "" {
		dst = s.part(dst, names.part+".done", it)
	}
	return s.item(dst, "response.output_item.done", it, status)
}

// End writes the events after the output.
func (s *stream) End(dst []byte, e *conversation.Ending) []byte {
	status, kind := "completed", "response.completed"
	if e.Reason == conversation.Full {
		status, kind = "incomplete", "response.incomplete"
	}
	before := len(s.all.Items)
	if before > 0 {
		dst = s.close(dst, status)
	}
	if s.all.Items = spoken(s.all.Items, e.Reason); len(s.all.Items) > before {
		dst = s.close(s.open(dst), status)
	}
	s.object.items, s.object.ending = s.all.Items, e
	return s.event(dst, kind, func(dst []byte) []byte { return s.wire.store(append(dst, `"response":`...), &s.object) })
}

// Fault ends the stream with a response that has failed.
func (s *stream) Fault(dst []byte, e *conversation.Error) []byte {
	s.object.items, s.object.fault = s.all.Items, e
	return s.whole(dst, "response.failed")
}

// AppendErrorEvent writes the event by which a proxy ends a stream that the server has broken off. number is that of the event.
func AppendErrorEvent(dst []byte, e *conversation.Error, number int) []byte {
	s := stream{number: number}
	return s.event(dst, "error", func(dst []byte) []byte {
		dst = jsontext.AppendOptional(append(dst, `"code":`...), e.Code)
		dst = jsontext.AppendString(append(dst, `,"message":`...), e.Message)
		return jsontext.AppendOptional(append(dst, `,"param":`...), e.Param)
	})
}
