package server

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/grammar/toolcall/parse"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/server/internal/answer"
)

// answered is the answer to a request, as a stream or whole.
type answered interface {
	SetPrompt(i int, text string, tokens []kv.Token)
	stream() streamed
	whole() collected
}

// streamed writes the pieces of a streamed answer.
type streamed interface {
	ContentType() string
	Piece(dst []byte, prompt int, p *coppice.Piece) []byte
	Ping(dst []byte) []byte // shows the client that the answer goes on
	Tools() []string        // that the first output calls, by name
	Repeated() bool         // no output has more to give, and the request should be stopped
	RepeatsScores() bool
	Done(dst []byte) []byte
	Error(dst []byte, e *conversation.Error) []byte
}

// collected collects the pieces of an answer that is sent whole.
type collected interface {
	Piece(prompt int, p *coppice.Piece)
	Repeated() bool
	Tools() []string // as in streamed, after Append
	Append(dst []byte) []byte
}

// inOpenAI is an answer in the form of /v1/completions or /v1/chat/completions.
type inOpenAI struct{ *answer.Answer }

func (a inOpenAI) stream() streamed { return a.Stream() }
func (a inOpenAI) whole() collected { return a.Whole() }

// inWire is the answer to a turn, in the form of another API.
type inWire struct{ *answer.Talk }

func (a inWire) stream() streamed { return a.Stream() }
func (a inWire) whole() collected { return a.Whole() }

// converse answers a turn of a conversation in the form of wire.
func (c *call) converse(turn *conversation.Turn, wire conversation.Wire) error {
	if err := c.accept(&turn.Params, 1); err != nil {
		return err
	}
	req, err := c.turnRequest(turn)
	if err != nil {
		return renamed(&turn.Params, err)
	}
	return c.talk(turn, wire, req)
}

// talk answers req, the request that a turn has become, in the form of wire.
func (c *call) talk(turn *conversation.Turn, wire conversation.Wire, req coppice.Request) error {
	out := answer.NewTalk(turn, conversation.Head{ID: fmt.Sprintf("%016x", rand.Uint64()), Created: time.Now().Unix(), Model: c.s.cfg.Model}, wire)
	out.SetNames(c.s.cfg.Node.Tokenizer())
	out.SetForm(c.s.policies.calling.Form, c.s.policies.calling.Marks)
	if c.s.policies.calling.Thinks {
		out.SetReasoning(parse.OpensThinking(req.Prompt))
	}
	return renamed(&turn.Params, c.generate(&turn.Params, inWire{out}, []coppice.Request{req}, []string{req.Prompt}, true))
}
