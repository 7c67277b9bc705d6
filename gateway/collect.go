package gateway

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coppice-llm/coppice/gateway/members"
	"github.com/coppice-llm/coppice/router"
)

// collector reads what others count when it is asked.
type collector struct{ g *Gateway }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("coppice_router_"+name, help, labels, nil)
}

var (
	workersDesc   = desc("workers", "Workers by state.", "state")
	modeDesc      = desc("worker_mode", "1 for how what a worker holds is known: events, approximate, or waiting for its events.", "worker", "mode")
	activeDesc    = desc("worker_active_requests", "Requests that a worker has.", "worker", "rank")
	prefillDesc   = desc("worker_active_prefill_tokens", "Prompt tokens that it has yet to compute, as predicted.", "worker", "rank")
	blocksDesc    = desc("worker_active_blocks", "Distinct blocks of its requests, as predicted.", "worker", "rank")
	heldDesc      = desc("worker_index_blocks", "Blocks that it is known to hold.", "worker", "rank")
	guessedDesc   = desc("guessed_blocks", "Blocks that workers are guessed to hold, by why: no events, or not yet (a request on its way will compute them).", "why")
	queuedDesc    = desc("queued_requests", "Requests that wait while all workers are busy.")
	eventsDesc    = desc("events_total", "What came of the workers' events, by what it was.", "what")
	poolDesc      = desc("pool_workers", "Healthy workers by pool.", "pool")
	decisionsDesc = desc("decisions_total", "Choices of a worker, by why it was chosen.", "reason")
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{workersDesc, modeDesc, activeDesc, prefillDesc, blocksDesc, heldDesc, guessedDesc, queuedDesc, eventsDesc, poolDesc, decisionsDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	g := c.g
	states := [members.States]int{}
	for _, m := range g.members.All() {
		states[m.Status().State]++
	}
	for s, n := range states {
		gauge(workersDesc, float64(n), members.State(s).String())
	}
	fleet := g.members.Snapshot()
	for _, m := range fleet.ByID {
		gauge(modeDesc, 1, m.Name(), g.mode(m))
	}
	for _, name := range g.dispatch.Pools().Names() {
		gauge(poolDesc, float64(g.dispatch.PoolSize(name)), name)
	}
	for _, l := range g.dispatch.Loads() {
		m := fleet.ByID[l.Worker.Worker]
		if m == nil {
			continue
		}
		name, rank := m.Name(), strconv.Itoa(int(l.Worker.DP))
		gauge(activeDesc, float64(l.Requests), name, rank)
		gauge(prefillDesc, float64(l.PrefillTokens), name, rank)
		gauge(blocksDesc, float64(l.Blocks), name, rank)
		gauge(heldDesc, float64(g.dispatch.Index().Held(l.Worker)), name, rank)
	}
	rm, guessed := g.dispatch.Metrics()
	gauge(guessedDesc, float64(guessed), "no events")
	gauge(guessedDesc, float64(rm.Promised), "not yet")
	gauge(queuedDesc, float64(rm.Waiting))
	for reason, n := range rm.Selected {
		count(decisionsDesc, n, router.Reason(reason).String())
	}
	for _, e := range g.eventCounts() {
		count(eventsDesc, e.n, e.what)
	}
}
