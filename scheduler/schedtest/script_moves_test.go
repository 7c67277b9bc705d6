package schedtest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/scheduler"
)

// scriptTiers parses the tiers of an init; nil if there are none.
func scriptTiers(a *args, pageTokens int) (*tiering.Config, error) {
	host, disk, shared, bandwidth := a.number("host", 0), a.number("disk", 0), a.number("shared", 0), a.number("bandwidth", 0)
	var mode tiering.Mode
	err := mode.UnmarshalText([]byte(a.text("write", "back")))
	if host+disk+shared == 0 {
		return nil, err
	}
	c := hostTier(host, pageTokens)
	c.Mode, c.Uses = mode, 1
	c.Tiers[kv.TierDisk] = hostTier(disk, pageTokens).Tiers[kv.TierHost]
	c.Tiers[kv.TierShared] = hostTier(shared, pageTokens).Tiers[kv.TierHost]
	c.Tiers[kv.TierShared].Kept = true
	for i := range c.Tiers {
		c.Tiers[i].Bandwidth = float64(bandwidth)
	}
	return c, err
}

// stores sets the duration and the error of later operations of stores.
func (s *Script) stores(a *args) (string, error) {
	took, fail, only, slow := a.duration("took"), a.text("fail", ""), a.number("move", 0), a.number("slow", 0)
	faults := map[string]error{"": nil, "io": errIO, "corrupt": mempool.ErrCorrupt, "hang": errHangs}
	err, known := faults[fail]
	if !known {
		a.fail("fail: want io, corrupt or hang")
	}
	s.rig.lower.took = func(m *tiering.Move) time.Duration {
		if slow > 0 && m.ID != tiering.MoveID(slow) {
			return 0
		}
		return took
	}
	s.rig.lower.fault = func(m *tiering.Move) (error, bool) {
		if only > 0 && m.ID != tiering.MoveID(only) {
			return nil, false
		}
		return err, false
	}
	return "", a.done()
}

// other plays another process at the shared tier: with lose=(tokens) it removes the last extent of
// these tokens and what continues it; without, it writes the extent that was lost last.
func (s *Script) other(a *args) (string, error) {
	l := &s.rig.lower
	tokens, err := s.parseTokens(a.values("lose"))
	if err := errors.Join(err, a.done()); err != nil {
		return "", err
	}
	if len(tokens) == 0 {
		if len(l.lost) == 0 {
			return "", errors.New("no extent was lost")
		}
		l.refind()
		return "", nil
	}
	xs := l.layout.AppendExtents(nil, kv.Namespace{}, tokens, nil)
	k := xs[len(xs)-1].Key
	if l.stores[kv.TierShared][k] == nil {
		return "", errors.New("the shared tier does not have it")
	}
	l.lose(kv.TierShared, k)
	return "", nil
}

// moved advances the clock until n moves have ended, by default one.
func (s *Script) moved(a *args) (string, error) {
	n := a.first(1)
	if err := a.done(); err != nil {
		return "", err
	}
	l := &s.rig.lower
	var b strings.Builder
	l.ended = func(c *carried, err error) {
		fmt.Fprintf(&b, "move %d: %v has ended: %v\n", c.ID, c.Kind, outcome(err))
	}
	defer func() { l.ended = nil }()
	for range n {
		if len(l.moves) == 0 {
			return "", errors.New("no move is under way")
		}
		for before := b.Len(); b.Len() == before; {
			if l.copied(); b.Len() == before && !s.rig.clock.Step() {
				return "", errors.New("no move ends")
			}
		}
	}
	s.rig.deliver()
	fmt.Fprintf(&b, "%s under way\n", plural(len(l.moves), "move"))
	return b.String(), nil
}

// outcome returns a word for the result of a move.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return oneLine(err.Error())
}

// tiers shows the contents of each tier below the device.
func (s *Script) tiers(a *args) (string, error) {
	if err := a.done(); err != nil {
		return "", err
	}
	var b strings.Builder
	l, m := &s.rig.lower, s.rig.sched.Metrics()
	for t := kv.TierHost; int(t) < kv.Tiers; t++ {
		if l.cfg == nil || l.cfg.Tiers[t].Bytes == 0 {
			continue
		}
		c := &m.Tiers[t]
		fmt.Fprintf(&b, "%v: %d tokens hit, %d reads, %d writes, %d errors, %d lost\n", t, c.HitTokens, c.Reads, c.Writes, c.Errors, c.Lost)
		var all []*record
		for _, k := range sortedKeys(l.stores[t]) {
			all = append(all, l.stores[t][k])
		}
		slices.SortStableFunc(all, func(a, b *record) int {
			return cmp.Or(cmp.Compare(a.extent.Start, b.extent.Start), slices.Compare(a.extent.Tokens, b.extent.Tokens))
		})
		for _, r := range all {
			fmt.Fprintf(&b, "  [%d,%d) %s\n", r.extent.Start, r.extent.Start+len(r.extent.Tokens), formatTokens(r.extent.Tokens))
		}
	}
	return b.String(), nil
}

// formatByTier prints the number of cached tokens from each lower tier.
func formatByTier(e *scheduler.Ending) (text string) {
	for t := kv.TierHost; int(t) < kv.Tiers; t++ {
		if n := e.CachedByTier[t]; n > 0 {
			text += fmt.Sprintf(" (%d from %v)", n, t)
		}
	}
	return text
}

// formatMoves prints the moves of a plan and those that its batch waits for.
func formatMoves(p *scheduler.Plan) string {
	var b strings.Builder
	for i := range p.Moves {
		m := &p.Moves[i]
		fmt.Fprintf(&b, "move %d: %v", m.ID, m.Kind)
		if m.Kind != tiering.Cancel {
			fmt.Fprintf(&b, " [%d,%d) from %v", m.Extent.Start, m.Extent.Start+len(m.Extent.Tokens), m.From)
		}
		if m.Kind == tiering.Write || m.Kind == tiering.Read {
			fmt.Fprintf(&b, " to %v", m.To)
		}
		if len(m.Pages) > 0 {
			fmt.Fprintf(&b, ", pages %s", formatPages(m.Pages))
		}
		b.WriteByte('\n')
	}
	if len(p.Batch.After) > 0 {
		fmt.Fprintf(&b, "after moves %v\n", p.Batch.After)
	}
	return b.String()
}

// hostTier returns a configuration with a host tier alone, for that many extents of one
// page each. pageTokens is the page size in tokens.
func hostTier(extents, pageTokens int) *tiering.Config {
	l := mempool.Layout{PageTokens: pageTokens, PageBytes: entryBytes * pageTokens, ExtentPages: 1}
	c := &tiering.Config{Layout: l}
	c.Tiers[kv.TierHost] = tiering.TierConfig{Bytes: int64(extents * l.ExtentBytes()), SlotBytes: l.ExtentBytes()}
	return c
}
