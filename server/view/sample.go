package view

import (
	"context"
	"math"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/figures"
	"github.com/coppice-llm/coppice/scheduler"
)

// Limits of queries to a source.
const (
	askTimeout  = 5 * time.Second // if the node takes longer, the page shows an error
	previewLen  = 32              // tokens of a node that are rendered as text
	curvePeriod = 5 * time.Second // time between two curves
)

// sampler makes states. It and its latest state belong to the Feed's goroutine.
type sampler struct {
	feed    *Feed
	rates   rates
	history history
	pruner  pruner
	snap    State
	walkAt  time.Time // earliest time of the next walk
	curveAt time.Time // earliest time of the next curve
}

func newSampler(f *Feed) *sampler {
	c := &f.cfg
	s := &sampler{
		feed:    f,
		rates:   rates{period: c.Period},
		history: history{limit: historyLen},
		pruner:  pruner{limit: treeNodes, depth: treeDepth, text: c.Text, shown: []Node{}},
	}
	s.history.h.PeriodMillis, s.history.h.WindowMillis = c.Period.Milliseconds(), window.Milliseconds()
	s.snap.Tree.Shown, s.snap.Tenants, s.snap.Running, s.snap.Waiting = []Node{}, []Tenant{}, []Running{}, []Waiting{} // lists are never null
	return s
}

// sample queries the source. If a query fails, Server.Error has the error, and the parts not
// read keep their previous values.
func (s *sampler) sample(ctx context.Context) *State {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c := &s.feed.cfg
	now := time.Now()
	info := c.Source.Info()
	snap := &s.snap
	snap.Schema, snap.AtMillis = Schema, now.UnixMilli()
	snap.Server = Server{
		Model: c.Model, Version: c.Version, Note: c.Note, Backend: info.Name, MaxPositions: info.MaxPositions,
		UptimeSeconds: math.Round(now.Sub(s.feed.started).Seconds()*10) / 10,
	}
	stats, err := c.Source.Stats(ctx)
	if err == nil {
		s.figures(now, &info, &stats)
		err = s.lists(ctx)
	}
	if err == nil {
		err = s.tree(ctx, now)
	}
	if err == nil {
		err = s.curve(ctx, now)
	}
	if err != nil {
		snap.Server.Error = err.Error()
	}
	s.finished()
	return snap
}

// figures fills in the node's figures from stats, and appends the point at the time now to the
// history.
func (s *sampler) figures(now time.Time, info *engine.Info, stats *coppice.Stats) {
	shown, hidden := s.snap.Tree.Shown, s.snap.Tree.Hidden
	s.snap.Stats = StatsOf(info, stats)
	s.snap.Tree.Shown, s.snap.Tree.Hidden = shown, hidden
	s.snap.Tenants = s.snap.Tenants[:min(len(s.snap.Tenants), s.feed.cfg.Listed)]
	p := s.rates.next(now, &stats.Scheduler)
	f := s.feed
	f.observed.Lock()
	p.TTFTp50Millis, p.TTFTp99Millis = f.ttft.quantiles(now)
	p.ITLp50Millis, p.ITLp99Millis = f.itl.quantiles(now)
	f.observed.Unlock()
	s.history.add(p)
	s.snap.Now, s.snap.History = p, s.history.h
}

// lists fills in the running and the waiting samples.
func (s *sampler) lists(ctx context.Context) error {
	c, snap := &s.feed.cfg, &s.snap
	running, err := c.Source.Running(ctx)
	if err != nil {
		return err
	}
	snap.Running = make([]Running, 0, min(len(running), c.Listed))
	for _, r := range running[:min(len(running), c.Listed)] {
		shown := Running{AgeSeconds: math.Round(r.Age.Seconds()*100) / 100}
		figures.Copy(&shown, r)
		snap.Running = append(snap.Running, shown)
	}
	snap.Waiting = make([]Waiting, 0)
	if snap.Totals.Waiting == 0 {
		return nil
	}
	waiting, err := c.Source.Waiting(ctx)
	if err != nil {
		return err
	}
	for _, w := range waiting {
		if w.Cause == scheduler.Runs {
			continue
		}
		if len(snap.Waiting) == c.Listed {
			break
		}
		snap.Waiting = append(snap.Waiting, Waiting{uint64(w.Request), w.Sample, w.Cause.String(), w.String(), w.CachedTokens})
	}
	return nil
}

// tree fills in the shown nodes, unless it is too early for the next walk: steps wait for walks.
func (s *sampler) tree(ctx context.Context, now time.Time) error {
	c, t := &s.feed.cfg, &s.snap.Tree
	if now.Before(s.walkAt) {
		return nil
	}
	q := coppice.TreeQuery{MaxNodes: treeWalk}
	if c.Text != nil {
		q.TokensPerNode = previewLen
	}
	tree, err := c.Source.Tree(ctx, q)
	if err != nil {
		return err
	}
	s.walkAt = now.Add(walkShare * time.Since(now))
	t.Hidden, t.Shown = tree.Hidden, s.pruner.prune(&tree)
	return nil
}

// curve fills in the hit rates at other pool sizes: 1/16 to 16 times the pool, in factors of √2.
func (s *sampler) curve(ctx context.Context, now time.Time) error {
	if now.Before(s.curveAt) {
		return nil
	}
	s.curveAt = now.Add(curvePeriod)
	pool := s.snap.Pool.Pages * s.snap.Pool.PageTokens
	var sizes []int
	for step := -8; step <= 8; step++ {
		size := int(math.Round(float64(pool) * math.Exp2(float64(step)/2)))
		if size > 0 && (len(sizes) == 0 || size > sizes[len(sizes)-1]) {
			sizes = append(sizes, size)
		}
	}
	rates, err := s.feed.cfg.Source.HitRates(ctx, sizes)
	s.snap.Curve = nil
	if err != nil || len(rates) != len(sizes) {
		return err
	}
	for i := range rates {
		rates[i] = float64(rounded(rates[i]))
	}
	s.snap.Curve = &Curve{CapacityTokens: sizes, HitRate: rates, PoolTokens: pool}
	return nil
}

// finished copies the latest endings, newest first.
func (s *sampler) finished() {
	f := s.feed
	f.observed.Lock()
	defer f.observed.Unlock()
	s.snap.Finished = make([]Finished, 0, len(f.finished))
	for i := range f.finished {
		s.snap.Finished = append(s.snap.Finished, f.finished[len(f.finished)-1-i])
	}
}
