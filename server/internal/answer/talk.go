package answer

import (
	"strconv"

	coppice "github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/grammar/toolcall"
	"github.com/coppice-llm/coppice/grammar/toolcall/parse"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
)

// Talk is the answer to a turn of a conversation with one choice, in the form of any API.
type Talk struct {
	state Answer
	about conversation.Head
	wire  conversation.Wire
}

// NewTalk begins the answer to t. The caller gives the prompt's tokens by SetPrompt, and then uses either
// Stream or Whole.
func NewTalk(t *conversation.Turn, h conversation.Head, wire conversation.Wire) *Talk {
	return &Talk{state: ofTurn(t), about: h, wire: wire}
}

// ofTurn returns the state of the answer to t.
func ofTurn(t *conversation.Turn) Answer {
	return Answer{
		params: &t.Params, chat: true, prompts: make([]promptState, 1), calls: t.Calls, held: t.Format.Calls != "",
		greedy: t.Sampling.Temperature == 0, tools: t.ToolNames, form: defaultForm,
	}
}

// SetForm does what Answer.SetForm does.
func (t *Talk) SetForm(form *toolcall.Form, marks []string) { t.state.SetForm(form, marks) }

// SetNames gives the tokenizer that names tokens, for requests with log-probabilities.
func (t *Talk) SetNames(tok *tokenizer.Tokenizer) { t.state.names.tok = tok }

// SetReasoning does what Answer.SetReasoning does.
func (t *Talk) SetReasoning(opened bool) { t.state.SetReasoning(opened) }

// SetPrompt gives the prompt before the first Piece. The caller must not change the tokens afterwards.
func (t *Talk) SetPrompt(i int, text string, tokens []kv.Token) {
	t.state.SetPrompt(i, text, tokens)
	t.about.PromptTokens = len(tokens)
	if w, ok := t.wire.(conversation.Prompted); ok {
		w.Prompt(text, tokens)
	}
}

// Stream returns the answer as a stream.
func (t *Talk) Stream() *TalkStream {
	return &TalkStream{said: said{talk: t, out: t.state.newParser()}, to: t.wire.Stream()}
}

// Whole returns the answer as one JSON object.
func (t *Talk) Whole() *TalkWhole {
	return &TalkWhole{said: said{talk: t, out: t.state.newParser()}, all: conversation.Answer{Head: t.about}}
}

// said reads the events in the pieces of an output.
type said struct {
	talk   *Talk
	out    *parser // nil if the whole text is content
	calls  int     // that have begun
	turns  turns
	events []conversation.Event
}

// Repeated reports the same as Stream.Repeated.
func (s *said) Repeated() bool { return s.turns.done(1) }

// Tools returns the names of the tools that the answer calls, in order.
func (s *said) Tools() []string { return s.out.tools() }

// next returns the events of p, which are valid until the following call, and the ending if p has it.
func (s *said) next(p *coppice.Piece) ([]conversation.Event, *conversation.Ending) {
	p = s.talk.state.cut(p)
	s.events = s.events[:0]
	if s.talk.state.params.Logprobs && len(p.Logprobs) > 0 {
		s.events = append(s.events, conversation.Event{Kind: conversation.Scores, Scores: s.talk.state.scores(p)})
	}
	if s.out == nil {
		if p.Text != "" {
			s.add(parse.Event{Kind: parse.Text, Text: p.Text})
		}
	} else {
		for _, e := range s.out.next(p.Text, p.Ending != nil) {
			s.add(e)
		}
	}
	s.turns.note(0, p.Ending != nil, s.out.repeated())
	if p.Ending == nil {
		return s.events, nil
	}
	s.talk.state.prompts[0].bill.Add(p.Ending)
	return s.events, s.ending(p.Ending)
}

var kinds = [...]conversation.Kind{parse.Text: conversation.Text, parse.Thought: conversation.Thought, parse.Call: conversation.Call, parse.Arguments: conversation.Arguments}

func (s *said) add(e parse.Event) {
	event := conversation.Event{Kind: kinds[e.Kind], Text: e.Text}
	if e.Kind == parse.Call {
		s.calls++
	}
	if e.Kind == parse.Call || e.Kind == parse.Arguments {
		event.CallID = s.talk.about.ID + "_" + strconv.Itoa(s.calls-1)
	}
	s.events = append(s.events, event)
}

func (s *said) ending(e *coppice.Ending) *conversation.Ending {
	e = s.out.stopped(e)
	end := &conversation.Ending{
		Usage: s.talk.state.Usage(), Tokens: s.talk.state.unstopped(e),
		Times: conversation.Times{Queued: e.Queued, FirstToken: e.FirstToken, Total: e.Total},
	}
	switch {
	case e.Reason == coppice.Length:
		end.Reason = conversation.Full
	case s.out.calls() > 0:
		end.Reason = conversation.Called
	case e.StopString != "":
		end.Reason, end.StopString = conversation.StopString, e.StopString
	}
	return end
}

// TalkStream writes a streamed answer. It belongs to one goroutine.
type TalkStream struct {
	said
	to    conversation.Writer
	begun bool
}

// ContentType is the media type of the stream.
func (s *TalkStream) ContentType() string { return s.talk.wire.ContentType() }

// RepeatsScores reports whether the end of the stream repeats all log-probabilities.
func (s *TalkStream) RepeatsScores() bool {
	w, ok := s.to.(conversation.Repeats)
	return ok && w.RepeatsScores()
}

// begin appends the beginning of the answer, once.
func (s *TalkStream) begin(dst []byte) []byte {
	if s.begun {
		return dst
	}
	s.begun = true
	return s.to.Begin(dst, &s.talk.about)
}

// Ping appends what shows the client that the answer goes on: its beginning, if that has not been sent.
func (s *TalkStream) Ping(dst []byte) []byte {
	before := len(dst)
	if dst = s.begin(dst); len(dst) > before {
		return dst
	}
	return s.to.Ping(dst)
}

// Piece appends what the client gets of p. A piece with an error goes to Error instead.
func (s *TalkStream) Piece(dst []byte, _ int, p *coppice.Piece) []byte {
	dst = s.begin(dst)
	events, end := s.next(p)
	for _, e := range events {
		dst = s.to.Event(dst, e)
	}
	if end != nil {
		dst = s.to.End(dst, end)
	}
	return dst
}

// Error appends the error that ends the stream.
func (s *TalkStream) Error(dst []byte, e *conversation.Error) []byte { return s.to.Fault(dst, e) }

// Done appends nothing: the end of the stream is that of its last piece.
func (s *TalkStream) Done(dst []byte) []byte { return dst }

// TalkWhole collects an answer that is sent as one JSON object.
type TalkWhole struct {
	said
	all conversation.Answer
}

// Piece adds a piece.
func (w *TalkWhole) Piece(_ int, p *coppice.Piece) {
	events, end := w.next(p)
	for _, e := range events {
		w.all.Add(e)
	}
	if end != nil {
		w.all.Ending = *end
	}
}

// Append writes the answer, which has ended.
func (w *TalkWhole) Append(dst []byte) []byte { return w.talk.wire.Whole(dst, &w.all) }
