package actors

import (
	"context"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// Text is a text for Tokenize.
type Text struct {
	Tenant   string // the tenant whose turn it takes
	Text     string
	Rendered bool  // as in Request
	Plain    []int // as in Request
	// Bounded refuses a text that is longer than any prompt may be, with Open's error. Otherwise
	// the whole text is encoded.
	Bounded bool
}

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
	stream, err := s.door.enter(1)
	if err != nil {
		return nil, err
	}
	return func() { s.door.leave(stream) }, nil
}

// turnsActor gives texts to the tokenizer workers: tenants take turns, and the texts of one
// tenant keep their order. So a tenant with many long texts delays the others by at most one.
type turnsActor struct {
	sys   *System
	idle  []int   // free workers
	lines []*line // tenants with waiting texts; next tenant first
	busy  map[string]int
}

// line is the queue of a tenant's waiting texts, oldest first.
type line struct {
	tenant string
	texts  []*encode
}

func newTurnsActor(s *System, workers int) *turnsActor {
	a := &turnsActor{sys: s, busy: make(map[string]int)}
	for i := range workers {
		a.idle = append(a.idle, i)
	}
	return a
}

func (a *turnsActor) receive(self *process, message any) {
	switch m := message.(type) {
	case *encode:
		a.line(m)
		a.start()
	case *encoded:
		a.idle = append(a.idle, m.worker)
		if a.busy[m.tenant]--; a.busy[m.tenant] == 0 {
			delete(a.busy, m.tenant)
		}
		a.start()
	case *shutdown:
		self.quit()
	default:
		unknown(m)
	}
}

// line appends a text to the queue of its tenant.
func (a *turnsActor) line(m *encode) {
	i := slices.IndexFunc(a.lines, func(l *line) bool { return l.tenant == m.tenant })
	if i < 0 {
		i = len(a.lines)
		a.lines = append(a.lines, &line{tenant: m.tenant})
	}
	a.lines[i].texts = append(a.lines[i].texts, m)
}

// start gives texts to the free workers: it picks a tenant with the fewest texts at workers,
// and among equals the one that has waited longest for a turn.
func (a *turnsActor) start() {
	for len(a.idle) > 0 && len(a.lines) > 0 {
		next := 0
		for i, l := range a.lines {
			if a.busy[l.tenant] < a.busy[a.lines[next].tenant] {
				next = i
			}
		}
		l := a.lines[next]
		m := l.texts[0]
		l.texts = l.texts[1:]
		if a.lines = slices.Delete(a.lines, next, next+1); len(l.texts) > 0 {
			a.lines = append(a.lines, l)
		}
		m.worker = a.idle[len(a.idle)-1]
		a.idle = a.idle[:len(a.idle)-1]
		a.busy[m.tenant]++
		a.sys.workers[m.worker].tell(m)
	}
}
