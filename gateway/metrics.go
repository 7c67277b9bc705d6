package gateway

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/gateway/fleetview"
	"github.com/coppice-llm/coppice/gateway/internal/dispatch"
	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/internal/figures"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// metrics holds the gateway's own counters. The values read at each scrape are those of scrape.
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
	Repeats    prometheus.Counter       `metric:"repeats_total" help:"Requests sent again because their worker failed after it may have begun them, before a byte of the answer reached the client."`
	Attempts   *prometheus.CounterVec   `metric:"attempts_total" by:"worker,outcome" help:"Tries of requests at workers by outcome: answered, declined (no room, or draining), unreached (no connection), taken (back from a late worker), unbegun or begun (the worker failed before or after it may have begun the request), gone (the client left)."`
	Broken     prometheus.Counter       `metric:"broken_answers_total" help:"Answers that broke off at the worker."`
	FirstToken prometheus.Histogram     `metric:"time_to_first_token_seconds" buckets:"latency" help:"Time from a streaming request's arrival to the first event of its answer."`
	Whole      prometheus.Histogram     `metric:"request_seconds" buckets:"latency" help:"Time from a request's arrival to the end of its answer."`
	Overhead   *prometheus.HistogramVec `metric:"overhead_seconds" by:"stage" buckets:"stages" help:"Time spent in the router per request, by stage: read (receive, tokenize, and hash the blocks of texts), hash (those of token ids), choose (find a worker, including the wait while all are busy)."`
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
func (m *metrics) begin(p *dispatch.Partition) {
	for _, name := range p.Names() {
		m.Pooled.WithLabelValues(name)
		m.PoolLeft.WithLabelValues(name)
	}
}

// forget removes the series of a worker that has left.
func (m *metrics) forget(worker string) {
	m.Requests.DeletePartialMatch(prometheus.Labels{"worker": worker})
	m.Attempts.DeletePartialMatch(prometheus.Labels{"worker": worker})
	m.recent.Forget(worker)
}

// scrape holds the figures that are read for each GET /metrics. The tags of its fields define
// the Prometheus metrics.
type scrape struct {
	States    map[string]int    `metric:"workers" by:"state" help:"Workers by state."`
	Workers   []workerScrape    `by:"worker"`
	Guessed   map[string]int    `metric:"guessed_blocks" by:"why" help:"Blocks assumed to be cached, by reason: no events (the worker sends none), or not yet (an active request will compute them)."`
	Queued    int               `metric:"queued_requests" help:"Requests waiting at the router because all workers are busy."`
	Events    map[string]uint64 `metric:"events_total" by:"what" help:"Cache events from workers by outcome: batches, blocks, gaps, recoveries, refusals."`
	Pools     map[string]int    `metric:"pool_workers" by:"pool" help:"Healthy workers by pool."`
	Records   map[string]uint64 `metric:"recorded_decisions_total" by:"what" help:"Decisions for the file of --record, by what became of them: written, or dropped because the queue was full or a write failed."`
	Texts     map[string]uint64 `metric:"text_tokens_total" by:"source" help:"Tokens of prompts' texts, by source: reused from a text encoded before, or encoded. 0 again with each tokenizer that is learnt from a worker."`
	TextBytes int               `metric:"text_cache_bytes" help:"Bytes of memory for texts encoded before and their tokens."`
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
	for id, m := range g.members.Summary().ByID {
		s.Workers = append(s.Workers, workerScrape{m.Name(), map[string]int{g.mode(m): 1}, ranks[id]})
	}
	for _, name := range g.dispatch.Pools().Names() {
		s.Pools[name] = g.dispatch.PoolSize(name)
	}
	texts := g.reading.Load().Stats()
	s.Records = map[string]uint64{"written": 0, "dropped": 0}
	if g.recorder != nil {
		s.Records["written"], s.Records["dropped"] = g.recorder.Counts()
	}
	s.Texts, s.TextBytes = map[string]uint64{"reused": texts.Reused, "encoded": texts.Encoded}, texts.Bytes
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
	if bound, ok := g.members.BoundCounts(); ok {
		for name, n := range figures.ByName(bound) {
			counts["bound_"+name] = n
		}
	}
	return counts
}

// ended updates the metrics and writes a log line for a finished request.
func (p *proxiedRequest) ended(r *http.Request) {
	m := p.g.metrics
	worker := ""
	if p.member != nil {
		worker = p.member.Name()
		m.Prompts.Add(float64(p.blocks))
		p.confirm()
		if p.inexact {
			m.Inexact.Inc()
		}
		m.Overhead.WithLabelValues("read").Observe(p.took.read.Seconds())
		m.Overhead.WithLabelValues("hash").Observe(p.took.hash.Seconds())
		m.Overhead.WithLabelValues("choose").Observe(p.took.choose.Seconds())
	}
	if pool := p.poolName(); pool != "" {
		m.Pooled.WithLabelValues(pool).Inc()
	}
	status := p.status
	if r.Context().Err() != nil && status < 400 && !p.answer.done {
		status = statusGone
	}
	total := time.Since(p.start)
	m.Requests.WithLabelValues(worker, strconv.Itoa(status)).Inc()
	m.Whole.Observe(total.Seconds())
	p.record(worker, status, total)
	p.learnt(outcomeAnswered, status)
	if p.member != nil && p.member.Gone() {
		p.g.members.Forget(worker) // the worker left before this request ended: remove its series and sums again
	}
	line := p.g.log.Check(zap.InfoLevel, "request")
	if line == nil {
		return
	}
	fields := append(make([]zap.Field, 0, 12), zap.String("request", r.Header.Get("X-Request-Id")), zap.String("path", r.URL.Path), zap.Int("status", status),
		zap.Duration("total", total), zap.String("worker", worker), zap.Int("attempts", p.attempts),
		zap.Int("prompt_blocks", p.blocks), zap.Int("overlap_blocks", p.decision.Overlap.Blocks()), zap.Duration("choose", p.took.choose))
	if pool := p.poolName(); pool != "" {
		fields = append(fields, zap.String("pool", pool))
	}
	if p.fault != nil {
		fields = append(fields, zap.Error(p.fault))
	}
	line.Write(fields...)
}

// confirm compares the predicted overlap with the number of cached tokens in the answer's usage.
// A worker always computes at least one prompt token, so a prompt that is fully cached reports
// one cached token less than it has; the + 1 makes up for it. An outdated index is corrected by the
// answer.
func (p *proxiedRequest) confirm() {
	m := p.g.metrics
	if p.blocks == 0 {
		return
	}
	u := &p.answer.usage
	if !u.reported {
		m.Untold.Inc()
		return
	}
	cached, predicted := min(p.blocks, (u.cached+1)/p.g.dispatch.BlockTokens()), min(p.blocks, p.decision.Overlap.Blocks())
	m.Overlaps.Add(float64(cached))
	m.Over.Add(float64(max(0, predicted-cached)))
	if cached < len(p.doubted) {
		p.g.dispatch.Correct(p.decision.Worker, p.doubted[cached:])
	}
	m.Under.Add(float64(max(0, cached-predicted)))
}

// record adds a finished request to the live page. total is its duration in the gateway.
func (p *proxiedRequest) record(worker string, status int, total time.Duration) {
	tokens := func(blocks int) int { return min(p.promptTokens, blocks*p.g.dispatch.BlockTokens()) }
	r := fleetview.Routed{
		Model: p.model, Worker: worker, Status: status, Attempts: p.attempts, PromptTokens: p.promptTokens,
		TotalMillis: total.Seconds() * 1e3, Ended: p.start.Add(total),
	}
	if p.member != nil {
		r.Reason, r.PredictedTokens = p.decision.Reason.String(), tokens(p.decision.Overlap.Blocks())
	}
	if u := &p.answer.usage; u.reported {
		r.CachedTokens = new(min(u.cached, p.promptTokens))
	}
	if at := p.answer.firstAt; !at.IsZero() {
		r.TTFTMillis = new(at.Sub(p.start).Seconds() * 1e3)
	}
	if p.fault != nil && status >= 400 {
		r.Error = p.fault.Error()
	}
	p.g.metrics.recent.Add(r)
}
