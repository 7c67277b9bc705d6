package gateway

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coppice-llm/coppice/gateway/dispatch"
	"github.com/coppice-llm/coppice/gateway/fleetview"
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
	if p := g.dispatch.Pools(); p != nil {
		all = append(all, m.pooled, m.poolLeft)
		m.begin(p)
	}
	for _, c := range all {
		if err := g.cfg.Registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// begin has the series of all pools begin.
func (m *metrics) begin(p *dispatch.Pools) {
	for _, name := range p.Names() {
		m.pooled.WithLabelValues(name)
		m.poolLeft.WithLabelValues(name)
	}
}

// forget ends the series of a worker that left.
func (m *metrics) forget(worker string) {
	m.requests.DeletePartialMatch(prometheus.Labels{"worker": worker})
	m.recent.Forget(worker)
}
