package gateway

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/gateway/fleetview"
	"github.com/coppice-llm/coppice/router"
)

// metrics are what the gateway counts. Names have the prefix coppice_router_.
type metrics struct {
	requests   *prometheus.CounterVec // by worker and status
	refused    *prometheus.CounterVec // by code
	retries    prometheus.Counter
	broken     prometheus.Counter
	firstToken prometheus.Histogram
	whole      prometheus.Histogram
	overhead   *prometheus.HistogramVec // by stage
	prompts    prometheus.Counter
	overlaps   prometheus.Counter
	over       prometheus.Counter
	under      prometheus.Counter
	untold     prometheus.Counter
	inexact    prometheus.Counter
	pooled     *prometheus.CounterVec // by pool; not registered without pools
	poolLeft   *prometheus.CounterVec // by pool

	recent *fleetview.Recorder // for the live page
	begun  time.Time
}

// stages has a bucket for each factor of two from a microsecond.
var stages = prometheus.ExponentialBuckets(1e-6, 2, 18)

var latency = []float64{.001, .002, .005, .01, .02, .03, .05, .075, .1, .15, .2, .3, .5, .75, 1, 1.5, 2.5, 5, 10, 20, 30, 60, 120}

func newMetrics(g *Gateway) (*metrics, error) {
	const prefix = "coppice_router_"
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
	}
	vec := func(name, help string, by ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, by)
	}
	m := &metrics{
		recent: fleetview.NewRecorder(), begun: time.Now(),
		requests:   vec("requests_total", "Requests by worker and status; no worker: none was asked; 499: the client had gone.", "worker", "status"),
		refused:    vec("refused_total", "Requests that the gateway itself answered with an error, by its code.", "code"),
		retries:    counter("retries_total", "Times that a request that no worker had begun to compute went to another worker."),
		broken:     counter("broken_answers_total", "Answers that a worker broke off."),
		prompts:    counter("prompt_blocks_total", "Blocks of routed prompts."),
		overlaps:   counter("overlap_blocks_total", "Blocks of routed prompts that the worker had cached, as its answer's usage says."),
		over:       counter("overpredicted_blocks_total", "Blocks that a worker was predicted to have cached and, by its answer's usage, had not."),
		under:      counter("underpredicted_blocks_total", "Blocks that a worker was not predicted to have cached and, by its answer's usage, had."),
		untold:     counter("unconfirmed_requests_total", "Routed prompts whose answer did not say how much of them was cached: broken, or a stream without usage."),
		inexact:    counter("inexact_prompts_total", "Prompts whose tokens could not be told, routed by load alone."),
		pooled:     vec("pool_requests_total", "Requests by the pool of the worker that was asked last, or of which one was to be.", "pool"),
		poolLeft:   vec("pool_moves_total", "Times that a request left a pool for the next one: nobody there could take it, or an attempt failed and it went to a faster one.", "pool"),
		firstToken: prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + "time_to_first_token_seconds", Help: "From a streaming request's arrival to the first event of its answer.", Buckets: latency}),
		whole:      prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + "request_seconds", Help: "From a request's arrival to the end of its answer.", Buckets: latency}),
		overhead: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + "overhead_seconds",
			Help: "What the gateway itself took of a request, by stage: read (to tokens), hash, choose (find and select, with waiting while all are busy).", Buckets: stages}, []string{"stage"}),
	}
	all := []prometheus.Collector{
		m.requests, m.refused, m.retries, m.broken, m.prompts, m.overlaps, m.over, m.under, m.untold, m.inexact, m.firstToken, m.whole, m.overhead, &collector{g: g},
	}
	if p := g.pools.Load(); p != nil {
		all = append(all, m.pooled, m.poolLeft)
		m.knows(p)
	}
	for _, c := range all {
		if err := g.cfg.Registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// knows has the series of all pools begin.
func (m *metrics) knows(p *pools) {
	for _, name := range p.names {
		m.pooled.WithLabelValues(name)
		m.poolLeft.WithLabelValues(name)
	}
}

// ended counts a request that is over.
func (m *metrics) ended(j *journey, r *http.Request) {
	worker := ""
	if j.member != nil {
		worker = j.member.name()
		m.prompts.Add(float64(j.blocks))
		m.confirm(j)
		if j.inexact {
			m.inexact.Inc()
		}
		m.overhead.WithLabelValues("read").Observe(j.read.Seconds())
		m.overhead.WithLabelValues("hash").Observe(j.hash.Seconds())
		m.overhead.WithLabelValues("choose").Observe(j.find.Seconds())
	}
	if pool := j.pools.name(j.pool); pool != "" {
		m.pooled.WithLabelValues(pool).Inc()
	}
	status := j.status
	if r.Context().Err() != nil && status < 400 {
		status = statusGone
	}
	total := time.Since(j.start)
	m.requests.WithLabelValues(worker, strconv.Itoa(status)).Inc()
	if j.member != nil && j.member.gone() {
		j.g.forget(worker) // or it would be counted for ever: it was forgotten before this
	}
	m.whole.Observe(total.Seconds())
	j.record(worker, status, total)
	line := j.g.log.Check(zap.InfoLevel, "request")
	if line == nil {
		return
	}
	fields := append(make([]zap.Field, 0, 12), zap.String("request", r.Header.Get("X-Request-Id")), zap.String("path", r.URL.Path), zap.Int("status", status),
		zap.Duration("total", total), zap.String("worker", worker), zap.Int("attempts", j.attempts),
		zap.Int("prompt_blocks", j.blocks), zap.Int("overlap_blocks", j.decision.Overlap.Blocks()), zap.Duration("choose", j.find))
	if pool := j.pools.name(j.pool); pool != "" {
		fields = append(fields, zap.String("pool", pool))
	}
	if j.fault != nil {
		fields = append(fields, zap.Error(j.fault))
	}
	line.Write(fields...)
}

// confirm holds what was predicted to be cached against what the answer says. A worker
// computes one token of a prompt in any case, which counts as cached.
func (m *metrics) confirm(j *journey) {
	if j.blocks == 0 {
		return
	}
	u := &j.answer.usage
	if !u.told {
		m.untold.Inc()
		return
	}
	cached, predicted := min(j.blocks, (u.cached+1)/j.g.chooser.blockTokens), min(j.blocks, j.decision.Overlap.Blocks())
	m.overlaps.Add(float64(cached))
	m.over.Add(float64(max(0, predicted-cached)))
	m.under.Add(float64(max(0, cached-predicted)))
}

// forget ends the series of a worker that left.
func (m *metrics) forget(worker string) {
	m.requests.DeletePartialMatch(prometheus.Labels{"worker": worker})
}

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
	states := [len(stateNames)]int{}
	for _, m := range g.all() {
		m.mu.Lock()
		states[m.state]++
		m.mu.Unlock()
	}
	for s, n := range states {
		gauge(workersDesc, float64(n), State(s).String())
	}
	roll := g.roll.Load()
	for _, m := range roll.byID {
		gauge(modeDesc, 1, m.name(), g.mode(m))
	}
	if p := g.pools.Load(); p != nil {
		for i, name := range p.names {
			gauge(poolDesc, float64(roll.pooled[inPool{pool: p.ids[i]}]), name)
		}
	}
	for _, l := range g.chooser.loads() {
		m := roll.byID[l.Worker.Worker]
		if m == nil {
			continue
		}
		name, rank := m.name(), strconv.Itoa(int(l.Worker.DP))
		gauge(activeDesc, float64(l.Requests), name, rank)
		gauge(prefillDesc, float64(l.PrefillTokens), name, rank)
		gauge(blocksDesc, float64(l.Blocks), name, rank)
		gauge(heldDesc, float64(g.index.Held(l.Worker)), name, rank)
	}
	rm, guessed, predicted := g.chooser.metrics()
	gauge(guessedDesc, float64(guessed), "no events")
	gauge(guessedDesc, float64(predicted), "not yet")
	gauge(queuedDesc, float64(rm.Waiting))
	for reason, n := range rm.Selected {
		count(decisionsDesc, n, router.Reason(reason).String())
	}
	for _, e := range g.eventCounts() {
		count(eventsDesc, e.n, e.what)
	}
}
