package schedtest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// key reads the prefix that a command is about.
func (s *Script) key(a *args) (radixcache.Key, error) {
	tokens, err := s.parseTokens(a.values("tokens"))
	key := radixcache.Key{Tokens: tokens}
	key.Namespace.Salt = a.text("salt", "")
	return key, errors.Join(err, a.done())
}

// offload has the scheduler copy a prefix to the host.
func (s *Script) offload(a *args) (string, error) {
	key, err := s.key(a)
	if err != nil {
		return "", err
	}
	n, err := s.rig.offload(key)
	if err != nil {
		return "refused: " + oneLine(err), nil
	}
	return plural(n, "token"), nil
}

// onboard has the scheduler copy a prefix back.
func (s *Script) onboard(a *args) (string, error) {
	key, err := s.key(a)
	if err != nil {
		return "", err
	}
	from, err := s.rig.onboard(key)
	if err != nil {
		return "refused: " + oneLine(err), nil
	}
	return fmt.Sprintf("from token %d on", from), nil
}

// movedOne tells the scheduler of the move that ends next.
func (s *Script) movedOne(a *args) (string, error) {
	fails := a.has("fail")
	if err := a.done(); err != nil {
		return "", err
	}
	for s.rig.moved(); len(s.ended) == 0 && len(s.rig.lower.pending) > 0 && s.rig.clock.Step(); s.rig.moved() {
	}
	if len(s.ended) == 0 {
		return "", errors.New("no move is under way")
	}
	d := s.ended[0]
	s.ended = s.ended[1:]
	if fails {
		d.Err = engine.ErrMove
	}
	s.rig.hear(d)
	return fmt.Sprintf("move %d: %v", d.ID, d.Err), nil
}

// formatMoves shows the moves of a plan and what its batch waits for.
func formatMoves(p *scheduler.Plan, size int) string {
	var b strings.Builder
	for i := range p.Moves {
		m := &p.Moves[i]
		end := len(m.Extent.Tokens)
		fmt.Fprintf(&b, "move %d: %v to %v, pages %s hold [%d,%d) of %s\n", m.ID, m.From, m.To, formatPages(m.Pages), end-len(m.Pages)*size, end, formatTokens(m.Extent.Tokens))
	}
	if len(p.Batch.After) > 0 {
		fmt.Fprintf(&b, "after moves %v\n", p.Batch.After)
	}
	return b.String()
}
