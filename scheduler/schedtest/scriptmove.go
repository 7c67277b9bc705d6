package schedtest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/scheduler"
)

// moved lets time go by until a move has ended, for the scheduler too.
func (s *Script) moved(a *args) (string, error) {
	fails := a.has("fail")
	if err := a.done(); err != nil {
		return "", err
	}
	l := &s.rig.lower
	if len(l.moves) == 0 {
		return "", errors.New("no move is under way")
	}
	if fails {
		l.fault = func(*tiering.Move) (error, bool) { return errIO, false }
		defer func() { l.fault = func(*tiering.Move) (error, bool) { return nil, false } }()
	}
	for n := len(l.moves); len(l.moves) == n; {
		if l.copied(); len(l.moves) == n && !s.rig.clock.Step() {
			return "", errors.New("no move ends")
		}
	}
	s.rig.deliver()
	return fmt.Sprintf("%d moves are under way", len(l.moves)), nil
}

// formatMoves shows the moves of a plan and what its batch waits for.
func formatMoves(p *scheduler.Plan) string {
	var b strings.Builder
	for i := range p.Moves {
		fmt.Fprintln(&b, formatMove(&p.Moves[i]))
	}
	if len(p.Batch.After) > 0 {
		fmt.Fprintf(&b, "after moves %v\n", p.Batch.After)
	}
	return b.String()
}
