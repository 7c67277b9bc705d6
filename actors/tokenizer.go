package actors

import (
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer"
)

// tokenizerActor turns prompts into tokens. It has no state but a cache of pieces,
// which begins anew with it: a panic costs the request that it was at, and the next
// worker goes on with the next.
type tokenizerActor struct {
	sys     *System
	tok     *tokenizer.Tokenizer
	encoder *tokenizer.Encoder // made for the first text
}

func (a *tokenizerActor) receive(self *process, message any) {
	switch m := message.(type) {
	case *encode:
		a.encode(m)
	case *shutdown:
		self.quit()
	default:
		unknown(m)
	}
}

// encode has no time for a request that has ended: a long text takes a second.
func (a *tokenizerActor) encode(m *encode) {
	if gone := m.stream.gone.Load(); gone != nil {
		a.sys.door.dismiss(m.stream, scheduler.Ending{Reason: scheduler.Abort, Err: *gone})
		return
	}
	select {
	case <-a.sys.ending: // the door ends it
		return
	default:
	}
	if a.encoder == nil {
		a.encoder = a.tok.NewEncoder()
	}
	if len(m.req.Tokens) == 0 && !m.req.Rendered {
		a.sys.submit(m.stream, m.req, a.encoder.EncodePrompt(nil, m.req.Prompt))
		return
	}
	// The tokens before are the caller's; they are not to be written to.
	tokens := append([]kv.Token(nil), m.req.Tokens...)
	a.sys.submit(m.stream, m.req, a.encoder.Encode(tokens, m.req.Prompt))
}

// drop ends the request at which the worker panicked.
func (a *tokenizerActor) drop(message any, err error) {
	if m, ok := message.(*encode); ok {
		a.sys.door.dismiss(m.stream, scheduler.Ending{Reason: scheduler.Failed, Err: err})
	}
}
