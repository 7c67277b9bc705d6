package actors

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer"
)

// Text is a text for Node.Tokenize.
type Text struct {
	Tenant    string       // the tenant whose turn it takes
	Namespace kv.Namespace // as in Request: what it has in common with texts of others is encoded again
	Text      string
	Rendered  bool  // as in Request
	Plain     []int // as in Request
	// Bounded refuses a text that is too long for any prompt, as Generate does. Otherwise the
	// whole text is encoded.
	Bounded bool
}

func (t *Text) options() tokenizer.Options {
	return tokenizer.Options{Prompt: !t.Rendered, Plain: t.Plain}
}

// owner returns the name for which the tokens of t are kept. The length separates tenant and salt.
func (t *Text) owner() string { return strconv.Itoa(len(t.Tenant)) + " " + t.Tenant + t.Namespace.Salt }

// Tokenize encodes a text as a prompt is encoded, when its tenant has its turn. It takes no
// credit. If ctx ends first, it returns context.Cause(ctx); after the system's end it
// returns the cause of that end.
func (s *System) Tokenize(ctx context.Context, t Text) ([]kv.Token, error) {
	if s.cfg.Tokenizer == nil {
		return nil, fmt.Errorf("%w: there is no tokenizer", scheduler.ErrInvalid)
	}
	reply := make(chan encodedText, 1)
	m := &encode{tenant: t.Tenant, text: t, reply: reply}
	m.text.Plain = slices.Clone(t.Plain)
	s.turns.tell(m)
	select {
	case r := <-reply:
		return r.tokens, r.err
	case <-ctx.Done():
		m.gone.Store(true)
		return nil, context.Cause(ctx)
	case <-s.ending:
		return nil, s.cause
	}
}

// Enter takes a credit for work that is not a request. The caller must call leave once, to
// give the credit back. Enter fails like Open if no credit is left or the system has ended.
func (s *System) Enter() (leave func(), err error) {
	stream, err := s.requests.enter(1)
	if err != nil {
		return nil, err
	}
	return func() { s.requests.leave(stream) }, nil
}

// turnsActor gives texts to the tokenizer workers; the texts of one tenant keep their order.
type turnsActor struct {
	shares[*encode]
	sys *System
}

func newTurnsActor(s *System, workers int) *turnsActor {
	return &turnsActor{newShares[*encode](workers, workers), s}
}

func (a *turnsActor) receive(self *process, message any) {
	switch m := message.(type) {
	case *encode:
		a.add(m.tenant, m)
	case *encoded:
		a.done(m.tenant, m.worker)
	case *shutdown:
		self.quit()
	default:
		unknown(m)
	}
	for {
		_, m, worker, ok := a.take()
		if !ok {
			return
		}
		m.worker = worker
		a.sys.workers[worker].tell(m)
	}
}
