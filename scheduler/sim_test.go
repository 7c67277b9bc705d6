package scheduler

import (
	"errors"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	simulated "github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
)

// sim is a simulated device whose batches run at once, checked slot by slot.
type sim struct {
	*simulated.Backend
	info  engine.Info
	clock *simulated.Clock
	given int   // tokens run that batches contained
	later int   // tokens run that were deferred
	fail  error // if set, the error of every row
}

var errRow = errors.New("row fails")

func newSim(tb testing.TB, pageTokens, pages, slots, positions int) *sim {
	tb.Helper()
	clock := simulated.NewClock()
	s := &sim{clock: clock}
	b, err := simulated.Open(simulated.Config{
		PageTokens: pageTokens, Pages: pages, MaxSlots: slots, MaxRows: slots, MaxTokens: 512, MaxPositions: positions,
		Vocab: 97, Sanitize: simulated.Full, Clock: clock,
		Faults: simulated.Faults{Row: func(uint64, int) error { return s.fail }},
	})
	if err != nil {
		tb.Fatal(err)
	}
	s.Backend, s.info = b, b.Info()
	return s
}

// expect returns the tokens that a greedy request must get.
func (s *sim) expect(prompt []kv.Token, n int) []kv.Token {
	return s.Expect(prompt, engine.SamplingParams{}, n, nil)
}

func (s *sim) run(b *engine.Batch) (*engine.Result, error) {
	t, err := s.Submit(b)
	if err != nil {
		return nil, err
	}
	for s.clock.Step() {
	}
	res, err := t.Result()
	if err == nil {
		s.given += res.Stats.GivenTokens
		s.later += res.Stats.DeferredTokens
	}
	return res, err
}

// ran returns the number of tokens run.
func (s *sim) ran() int { return s.given + s.later }
