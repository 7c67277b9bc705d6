package server

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/anthropic"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/kv"
)

// messages answers POST /v1/messages, of Anthropic's API.
func (c *call) messages() error {
	ask, err := read(c, func(b []byte) (*anthropic.Request, error) { return anthropic.Decode(b, c.s.policies.anthropic) })
	if err != nil {
		return err
	}
	if err := c.acceptMessages(ask); err != nil {
		return err
	}
	keep := time.Duration(0)
	if c.r.Header.Get(sessionHeader) == "" { // a session with a name of its own has its own hints
		for _, b := range ask.Breakpoints {
			keep = max(keep, b.TTL)
		}
	}
	if keep > 0 {
		ask.Session = ask.Conversation()
	}
	if err := c.converse(&ask.Turn, &messagesWire{s: c.s, ask: ask}); err != nil || keep == 0 {
		return err
	}
	c.s.pins.pin(c, c.session(ask.Session, ask.CacheSalt), keep)
	return nil
}

// countTokens answers POST /v1/messages/count_tokens. It enters the node as /tokenize does.
func (c *call) countTokens() error {
	ask, err := read(c, func(b []byte) (*anthropic.Request, error) { return anthropic.DecodeCount(b, c.s.policies.anthropic) })
	if err != nil {
		return err
	}
	if err := c.acceptMessages(ask); err != nil {
		return err
	}
	leave, err := c.s.cfg.Node.Enter()
	if err != nil {
		return err
	}
	defer leave()
	req, err := c.turnRequest(&ask.Turn)
	if err != nil {
		return err
	}
	reqs := []coppice.Request{req}
	if err := c.encode(reqs); err != nil {
		return blame(&ask.Params, err)
	}
	return c.json(http.StatusOK, anthropic.AppendCount(nil, len(reqs[0].Tokens)))
}

// strippedHeader says how many nonces were left out of the prompt, and the field that they were in.
const strippedHeader = "X-Coppice-Stripped"

// acceptMessages checks the model, and names in headers what the prompt lacks.
func (c *call) acceptMessages(ask *anthropic.Request) error {
	if ask.Stripped > 0 {
		c.w.Header().Set(strippedHeader, "system; blocks="+strconv.Itoa(ask.Stripped))
	}
	if c.s.knows(ask.Model) == nil {
		return nil
	}
	e := *conversation.ModelNotFound(ask.Model)
	names := append([]string{c.s.cfg.Model}, c.s.cfg.Aliases...)
	e.Message += "; these are " + strings.Join(names, ", ") + ". With --model-name " + c.s.cfg.Model + ",* the server takes any name"
	return &e
}

// messagesModels returns the models in the form of Anthropic's API.
func (s *Server) messagesModels() (all []anthropic.Model) {
	for _, name := range append([]string{s.cfg.Model}, s.cfg.Aliases...) {
		if name != AnyName {
			all = append(all, s.messagesModel(name))
		}
	}
	return all
}

func (s *Server) messagesModel(name string) anthropic.Model {
	return anthropic.Model{ID: name, Created: s.cfg.Created, MaxTokens: s.cfg.Node.Info().MaxPositions}
}

// messagesWire learns from the tokens of the prompt what the breakpoints of a request cover.
type messagesWire struct {
	anthropic.Wire
	s   *Server
	ask *anthropic.Request
}

// Prompt is called before the first part of the answer.
func (w *messagesWire) Prompt(text string, tokens []kv.Token) {
	w.Window = w.ask.MaxTokens > w.s.room(len(tokens))
	if len(w.ask.Breakpoints) == 0 {
		return
	}
	ends := w.ask.Ends(text)
	w.Covered, w.TTLs = w.s.tokensWithin(tokens, ends), make([]time.Duration, len(ends))
	for i, b := range w.ask.Breakpoints {
		w.TTLs[i] = b.TTL
	}
}

// tokensWithin returns how many leading tokens lie within the first bytes of their text, for each number of bytes in ends,
// which ascend. Where a tokenizer changes the text, the result is about as exact as the change is small.
func (s *Server) tokensWithin(tokens []kv.Token, ends []int) []int {
	tok := s.cfg.Node.Tokenizer()
	counts := make([]int, len(ends))
	at, next := 0, 0
	var special []byte
	for i, t := range tokens {
		if tok.Special(t) {
			special = tok.Decode(special[:0], tokens[i:i+1], false)
			at += len(special)
		} else {
			at += len(tok.Text(t))
		}
		for ; next < len(ends) && at > ends[next]; next++ {
			counts[next] = i
		}
		if next == len(ends) {
			return counts
		}
	}
	for ; next < len(ends); next++ {
		counts[next] = len(tokens)
	}
	return counts
}
