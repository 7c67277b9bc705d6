package answer

import (
	coppice "github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/grammar/toolcall/parse"
	"github.com/coppice-llm/coppice/internal/jsontext"
	"github.com/coppice-llm/coppice/openai"
)

// Stream writes an answer as server-sent events, each with its "data: " prefix and the empty
// line after it. In steady state it allocates only to grow dst. It belongs to one goroutine.
type Stream struct {
	Answer
	open    []byte // beginning of each event, up to its choice
	close   []byte // end of each event, after its choice
	choices []streamed
	tokens  int // output tokens of all choices so far
	turns   turns
}

// Repeated reports whether no output has more to give, because at temperature 0 each has ended or has repeated a
// call. The request should then be stopped.
func (s *Stream) Repeated() bool { return s.turns.done(len(s.choices)) }

// Tools returns the names of the tools that the first choice calls, in order.
func (s *Stream) Tools() []string { return s.choices[0].out.tools() }

// streamed is the progress of one choice.
type streamed struct {
	begun  bool
	offset int     // code points of the text so far
	out    *parser // of a chat; nil if its whole text is content
	call   int     // tool calls begun
}

// Stream returns a Stream for a.
func (a *Answer) Stream() *Stream {
	object := "text_completion"
	if a.chat {
		object = "chat.completion.chunk"
	}
	s := &Stream{Answer: *a, choices: make([]streamed, len(a.prompts)*a.params.N)}
	s.open = append(a.appendHead([]byte("data: "), object), `,"choices":[`...)
	s.close = []byte("}]")
	if a.shown.IncludeUsage {
		s.close = append(s.close, `,"usage":null`...)
	}
	s.close = append(s.close, "}\n\n"...)
	return s
}

// RepeatsScores reports the same as TalkStream.RepeatsScores.
func (s *Stream) RepeatsScores() bool { return false }

// Ping appends a comment, which clients leave out, to show that the answer goes on.
func (s *Stream) Ping(dst []byte) []byte { return append(dst, openai.Ping...) }

// end writes the end of an event. With ContinuousUsage that includes the usage so far.
func (s *Stream) end(dst []byte) []byte {
	if !s.shown.ContinuousUsage {
		return append(dst, s.close...)
	}
	u := openai.Usage{CompletionTokens: s.tokens}
	for i := range s.prompts {
		u.PromptTokens += len(s.prompts[i].tokens)
	}
	dst = u.AppendCounts(append(dst, `}],"usage":`...))
	return append(dst, "}}\n\n"...)
}

// Piece appends the events of p, a piece of prompt i: none while a character is incomplete,
// several where a choice of a chat begins or ends. A piece with an error goes to Error instead.
func (s *Stream) Piece(dst []byte, i int, p *coppice.Piece) []byte {
	p = s.cut(p)
	index := i*s.params.N + p.Sample
	c := &s.choices[index]
	s.tokens += len(p.Tokens)
	if p.Ending != nil {
		s.prompts[i].bill.Add(p.Ending)
	}
	if s.chat {
		return s.chatPiece(dst, index, c, p)
	}
	first := !c.begun
	c.begun = true
	text := p.Text
	if first && s.echo {
		text = s.prompts[i].text + text
	}
	ids := s.shown.ReturnTokenIDs
	if text == "" && p.Ending == nil && !(s.params.Logprobs || ids) {
		return dst
	}
	dst = s.completionChoice(append(dst, s.open...), index, text, s.scores(p), &c.offset, p.Ending)
	if ids {
		if first {
			dst = appendIDs(append(dst, `,"prompt_token_ids":`...), s.prompts[i].tokens)
		}
		dst = appendIDs(append(dst, `,"token_ids":`...), p.Tokens)
	}
	return s.end(dst)
}

// chatPiece writes the events of p, a piece of the choice c with this index: one with the role
// before the first content, then the content, and one with finish_reason if p ends the choice.
func (s *Stream) chatPiece(dst []byte, index int, c *streamed, p *coppice.Piece) []byte {
	ids := s.shown.ReturnTokenIDs
	if !c.begun {
		c.begun = true
		c.out = s.newParser()
		dst = s.begin(dst, index)
		dst = append(dst, `,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null`...)
		if ids {
			dst = appendIDs(append(dst, `,"prompt_token_ids":`...), s.prompts[0].tokens)
		}
		dst = s.end(dst)
	}
	if c.out != nil {
		dst = s.events(dst, index, c, p)
	} else if p.Text != "" || s.shows(p) {
		dst = append(s.begin(dst, index), `,"delta":{"content":`...)
		dst = jsontext.AppendString(dst, p.Text)
		dst = s.delta(append(dst, '}'), p)
	}
	s.turns.note(index, p.Ending != nil, c.out.repeated())
	if p.Ending != nil {
		dst = s.begin(dst, index)
		dst = append(dst, `,"delta":{},"logprobs":null,`...)
		dst = s.appendFinish(dst, c.out.stopped(p.Ending), c.out.calls() > 0)
		dst = s.end(dst)
	}
	return dst
}

// scores returns the tokens of p with their log-probabilities, nil if the request wants none or p
// has no tokens or is nil.
func (s *Stream) scores(p *coppice.Piece) *scored {
	if !s.params.Logprobs || p == nil || len(p.Tokens) == 0 {
		return nil
	}
	return &scored{p.Tokens, p.Logprobs, p.Top}
}

// shows reports whether a piece without text needs an event for its tokens.
func (s *Stream) shows(p *coppice.Piece) bool {
	return len(p.Tokens) > 0 && (s.params.Logprobs || s.shown.ReturnTokenIDs)
}

// delta writes the part of an event after its delta: log-probabilities, finish_reason null, and
// the ids of p's tokens, if the request asks for them. For a nil p it writes no log-probabilities
// and no ids.
func (s *Stream) delta(dst []byte, p *coppice.Piece) []byte {
	dst = s.chatLogprobs(append(dst, `,"logprobs":`...), s.scores(p))
	dst = append(dst, `,"finish_reason":null`...)
	if p != nil && s.shown.ReturnTokenIDs {
		dst = appendIDs(append(dst, `,"token_ids":`...), p.Tokens)
	}
	return s.end(dst)
}

// events writes the events of p for a choice whose output is split into reasoning, content and
// calls. The first event carries the ids and log-probabilities of all tokens of p.
func (s *Stream) events(dst []byte, index int, c *streamed, p *coppice.Piece) []byte {
	all := c.out.next(p.Text, p.Ending != nil)
	of := p
	for _, e := range all {
		dst = append(s.begin(dst, index), `,"delta":{`...)
		switch e.Kind {
		case parse.Text:
			dst = jsontext.AppendString(append(dst, `"content":`...), e.Text)
		case parse.Thought:
			dst = jsontext.AppendString(append(dst, `"reasoning_content":`...), e.Text)
		case parse.Call:
			dst = jsontext.AppendInt(append(dst, `"tool_calls":[{"index":`...), c.call)
			dst = s.appendCall(append(dst, ','), index, c.call, e.Text)
			dst = append(dst, `""}}]`...)
			c.call++
		case parse.Arguments:
			dst = jsontext.AppendInt(append(dst, `"tool_calls":[{"index":`...), c.call-1)
			dst = jsontext.AppendString(append(dst, `,"function":{"arguments":`...), e.Text)
			dst = append(dst, `}}]`...)
		}
		dst, of = s.delta(append(dst, '}'), of), nil
	}
	if len(all) == 0 && s.shows(p) {
		dst = s.delta(append(s.begin(dst, index), `,"delta":{}`...), p)
	}
	return dst
}

// begin writes the beginning of a chat event, up to the index of the choice, and leaves its
// objects open.
func (s *Stream) begin(dst []byte, index int) []byte {
	dst = append(dst, s.open...)
	dst = append(dst, `{"index":`...)
	return jsontext.AppendInt(dst, index)
}

// Error appends an event with the error. It ends the stream; do not call Done after it.
func (s *Stream) Error(dst []byte, e *conversation.Error) []byte {
	dst = openai.AppendError(append(dst, "data: "...), e)
	return append(dst, "\n\n"...)
}

// ContentType is the media type of the stream.
func (s *Stream) ContentType() string { return "text/event-stream" }

// Done appends the end of the stream: the usage, if asked for, as a chunk without choices, and
// "[DONE]".
func (s *Stream) Done(dst []byte) []byte {
	if s.shown.IncludeUsage {
		dst = append(dst, s.open...)
		dst = append(dst, `],"usage":`...)
		dst = openai.Usage(s.Usage()).Append(dst)
		dst = append(dst, "}\n\n"...)
	}
	return append(dst, "data: [DONE]\n\n"...)
}
