package gateway

import (
	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/internal/figures"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// scrape holds the figures that are read for each GET /metrics. The tags of its fields define
// the Prometheus metrics.
type scrape struct {
	States    map[string]int    `metric:"workers" by:"state" help:"Workers by state."`
	Workers   []workerScrape    `by:"worker"`
	Guessed   map[string]int    `metric:"guessed_blocks" by:"why" help:"Blocks assumed to be cached, by reason: no events (the worker sends none), or not yet (an active request will compute them)."`
	Queued    int               `metric:"queued_requests" help:"Requests waiting at the router because all workers are busy."`
	Events    map[string]uint64 `metric:"events_total" by:"what" help:"Cache events from workers by outcome: batches, blocks, gaps, recoveries, refusals."`
	Pools     map[string]int    `metric:"pool_workers" by:"pool" help:"Healthy workers by pool."`
	Decisions map[string]uint64 `metric:"decisions_total" by:"reason" help:"Choices of a worker, by reason."`
}

// workerScrape holds the figures of one worker.
type workerScrape struct {
	Worker string         `label:"true"`
	Mode   map[string]int `metric:"worker_mode" by:"mode" help:"1 for the source of a worker's index entries: events, approximate, outdated (its last events; none arrive now), or waiting for events."`
	Ranks  []RankStatus   `by:"rank"`
}

// scrape reads the figures for Prometheus. If several workers have one name, and so one ID, only
// one of them is included.
func (g *Gateway) scrape() scrape {
	s := scrape{States: map[string]int{}, Pools: map[string]int{}, Decisions: map[string]uint64{}, Events: g.eventCounts()}
	for state := range members.States {
		s.States[members.State(state).String()] = 0
	}
	for _, m := range g.members.All() {
		s.States[m.Status().State.String()]++
	}
	ranks := g.ranks()
	for id, m := range g.members.Snapshot().ByID {
		s.Workers = append(s.Workers, workerScrape{m.Name(), map[string]int{g.mode(m): 1}, ranks[id]})
	}
	for _, name := range g.dispatch.Pools().Names() {
		s.Pools[name] = g.dispatch.PoolSize(name)
	}
	m, guessed := g.dispatch.Metrics()
	s.Guessed = map[string]int{"no events": guessed, "not yet": m.Promised}
	s.Queued = m.Waiting
	for reason, n := range m.Selected {
		s.Decisions[router.Reason(reason).String()] = n
	}
	return s
}

// ranks returns the load of every rank by worker.
func (g *Gateway) ranks() map[kv.WorkerID][]RankStatus {
	ranks := map[kv.WorkerID][]RankStatus{}
	for _, l := range g.dispatch.Loads() {
		r := RankStatus{Rank: l.Worker.DP, Requests: l.Requests, PrefillTokens: l.PrefillTokens, Blocks: l.Blocks, HeldBlocks: g.dispatch.Index().Held(l.Worker)}
		if s, ok := g.members.Events(l.Worker); ok {
			r.Events, r.NextSeq = s.State.String(), s.Next
		}
		ranks[l.Worker.Worker] = append(ranks[l.Worker.Worker], r)
	}
	return ranks
}

// eventCounts returns the counters of the event followers and of the index.
func (g *Gateway) eventCounts() map[string]uint64 {
	counts := figures.ByName(g.members.EventCounts())
	for name, n := range figures.ByName(g.dispatch.Index().Stats()) {
		counts["index_"+name] = n
	}
	return counts
}
