package gateway

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coppice-llm/coppice/gateway/fleetview"
	"github.com/coppice-llm/coppice/gateway/internal/dispatch"
	"github.com/coppice-llm/coppice/internal/figures"
)

// metrics holds the gateway's own counters. The values read at each scrape are in collect.go.
type metrics struct {
	instruments
	poolInstruments // registered only with pools

	recent *fleetview.Recorder // for the live page
	begun  time.Time
}

// names prefixes the metrics of a router.
var names = figures.Names{Prefix: "coppice_router_"}

// instruments are created and registered by their tags.
type instruments struct {
	Requests   *prometheus.CounterVec   `metric:"requests_total" by:"worker,status" help:"Requests by worker and status. Empty worker: the request reached none. 499: the client left before the answer."`
	Refused    *prometheus.CounterVec   `metric:"refused_total" by:"code" help:"Requests that the router itself answered with an error, by its code."`
	Retries    prometheus.Counter       `metric:"retries_total" help:"Requests sent to another worker because the first had not begun to compute them."`
	Broken     prometheus.Counter       `metric:"broken_answers_total" help:"Answers that broke off at the worker."`
	FirstToken prometheus.Histogram     `metric:"time_to_first_token_seconds" buckets:"latency" help:"Time from a streaming request's arrival to the first event of its answer."`
	Whole      prometheus.Histogram     `metric:"request_seconds" buckets:"latency" help:"Time from a request's arrival to the end of its answer."`
	Overhead   *prometheus.HistogramVec `metric:"overhead_seconds" by:"stage" buckets:"stages" help:"Time spent in the router per request, by stage: read (receive and tokenize), hash, choose (find a worker, including the wait while all are busy)."`
	Prompts    prometheus.Counter       `metric:"prompt_blocks_total" help:"Blocks of routed prompts."`
	Overlaps   prometheus.Counter       `metric:"overlap_blocks_total" help:"Blocks of routed prompts found in the worker's cache, by the usage in its answer."`
	Over       prometheus.Counter       `metric:"overpredicted_blocks_total" help:"Blocks predicted to be cached at the worker but not found, by the usage in its answer."`
	Under      prometheus.Counter       `metric:"underpredicted_blocks_total" help:"Blocks found in the worker's cache without a prediction, by the usage in its answer."`
	Untold     prometheus.Counter       `metric:"unconfirmed_requests_total" help:"Routed prompts whose answer has no number of cached tokens: broken answers, and streams without usage."`
	Inexact    prometheus.Counter       `metric:"inexact_prompts_total" help:"Prompts that could not be tokenized and were routed by load alone."`
}

// poolInstruments are counters by pool.
type poolInstruments struct {
	Pooled   *prometheus.CounterVec `metric:"pool_requests_total" by:"pool" help:"Requests by pool: that of the last worker tried, or the chosen one."`
	PoolLeft *prometheus.CounterVec `metric:"pool_moves_total" by:"pool" help:"Requests that left a pool for the next one, because no worker there could take them or an attempt failed."`
}

// stages holds histogram bounds in seconds: powers of two from 1 µs to 0.13 s.
var stages = prometheus.ExponentialBuckets(1e-6, 2, 18)

var latency = []float64{.001, .002, .005, .01, .02, .03, .05, .075, .1, .15, .2, .3, .5, .75, 1, 1.5, 2.5, 5, 10, 20, 30, 60, 120}

// newMetrics makes and registers the metrics. Those by pool are made only if the gateway has
// pools.
func newMetrics(g *Gateway) (*metrics, error) {
	m := &metrics{recent: fleetview.NewRecorder(), begun: time.Now()}
	buckets := map[string][]float64{"latency": latency, "stages": stages}
	if err := figures.Register(g.cfg.Registry, names, &m.instruments, buckets); err != nil {
		return nil, err
	}
	if p := g.dispatch.Pools(); p != nil {
		if err := figures.Register(g.cfg.Registry, names, &m.poolInstruments, nil); err != nil {
			return nil, err
		}
		m.begin(p)
	}
	return m, g.cfg.Registry.Register(figures.Collector(names, g.scrape))
}

// begin creates the series of all pools, so that they start at 0.
func (m *metrics) begin(p *dispatch.Pools) {
	for _, name := range p.Names() {
		m.Pooled.WithLabelValues(name)
		m.PoolLeft.WithLabelValues(name)
	}
}

// forget removes the series of a worker that has left.
func (m *metrics) forget(worker string) {
	m.Requests.DeletePartialMatch(prometheus.Labels{"worker": worker})
	m.recent.Forget(worker)
}
