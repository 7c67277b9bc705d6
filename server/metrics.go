package server

import (
	"context"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/coppice-llm/coppice/internal/figures"
	"github.com/coppice-llm/coppice/server/internal/prefixbreak"
	"github.com/coppice-llm/coppice/server/view"
)

// metrics are the instruments of the server. Names and meanings are those of vLLM and SGLang
// where these have one. The values read at each scrape are those of scrape.
type metrics struct {
	instruments
	registry *prometheus.Registry
	conns    atomic.Int64

	labelled map[string]bool     // tenants with a label of their own
	accounts map[string]*account // by tenant; never changed after newMetrics
}

// instruments are created and registered by their tags.
type instruments struct {
	FirstToken prometheus.Histogram `metric:"time_to_first_token_seconds" alias:"vllm" buckets:"seconds" help:"Time from a request's arrival to the first token of each of its choices."`
	NextToken  prometheus.Histogram `metric:"inter_token_latency_seconds" alias:"vllm" buckets:"seconds" help:"Time between two tokens of a choice. Where several come at once, their mean."`
	PerToken   prometheus.Histogram `metric:"request_time_per_output_token_seconds" alias:"vllm" buckets:"seconds" help:"Time from a request's first token to its end, divided by the tokens after the first."`
	Whole      prometheus.Histogram `metric:"e2e_request_latency_seconds" alias:"vllm" buckets:"seconds" help:"Time from a request's arrival to the end of its answer."`
	Queued     prometheus.Histogram `metric:"request_queue_time_seconds" alias:"vllm" buckets:"seconds" help:"Time from the tokenized request to its first step."`
	Prompts    prometheus.Histogram `metric:"request_prompt_tokens" alias:"vllm" buckets:"tokens" help:"Prompt tokens of a request."`
	Outputs    prometheus.Histogram `metric:"request_generation_tokens" alias:"vllm" buckets:"tokens" help:"Output tokens of a request."`

	Requests *prometheus.CounterVec `metric:"http_requests_total" by:"path,method,status" help:"HTTP requests by path, method and status. 499: the client left before the answer."`
	Refused  *prometheus.CounterVec `metric:"request_errors_total" by:"code" help:"Requests that were refused or failed, by the code of the error."`
	Gone     prometheus.Counter     `metric:"client_disconnects_total" help:"Requests for tokens whose client left before the end."`
	Slow     prometheus.Counter     `metric:"slow_clients_total" help:"Requests for tokens that ended because the client took nothing of the answer for too long."`

	PrefixBreaks *prometheus.CounterVec `metric:"prefix_breaks_total" by:"cause" help:"Turns of a conversation that changed what the turn before began with, by cause: nonce, timestamp, tool-order, tools, truncated or other."`
	PrefixTokens *prometheus.CounterVec `metric:"prefix_break_tokens_total" by:"cause" help:"Tokens of the turns before that could not be used because of that, by cause."`

	TenantRequests *prometheus.CounterVec `metric:"tenant_requests_total" by:"tenant" help:"Requests for tokens, by tenant."`
	TenantPrompt   *prometheus.CounterVec `metric:"tenant_prompt_tokens_total" by:"tenant" help:"Prompt tokens, by tenant."`
	TenantCached   *prometheus.CounterVec `metric:"tenant_cached_tokens_total" by:"tenant" help:"Prompt tokens found in the prefix cache, by tenant."`
	TenantOutput   *prometheus.CounterVec `metric:"tenant_generation_tokens_total" by:"tenant" help:"Output tokens, by tenant."`
	TenantServed   *prometheus.CounterVec `metric:"tenant_served_tokens_total" by:"tenant" help:"Tokens computed, by tenant: prompt tokens that were not cached, for each choice, and output tokens. --policy dlpm shares these."`
}

// latency holds histogram bounds in seconds, in steps of about 1.5, from half a millisecond
// (less than a step of any real model) to a minute.
var latency = []float64{.0005, .001, .002, .003, .005, .0075, .01, .015, .02, .03, .04, .06, .08, .1, .15, .2, .3, .5, .75, 1, 1.5, 2.5, 5, 10, 20, 30, 60}

// sizes holds histogram bounds in tokens.
var sizes = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072}

// newMetrics sets s.metrics and registers them. It fails if the registry has any of them already. The
// registry may read s before newMetrics returns, so the collector of s comes last.
func newMetrics(s *Server) error {
	m := &metrics{registry: s.cfg.Registry, labelled: map[string]bool{}, accounts: map[string]*account{}}
	s.metrics = m
	names := figures.Names{Prefix: "coppice_", Labels: prometheus.Labels{"model_name": s.cfg.Model}}
	if s.cfg.MetricAliases == VLLMNames {
		names.Aliases = map[string]string{"vllm": "vllm:"}
	}
	if err := figures.Register(m.registry, names, &m.instruments, map[string][]float64{"seconds": latency, "tokens": sizes}); err != nil {
		return err
	}
	for _, cause := range prefixbreak.Causes() { // all begin at 0
		m.PrefixBreaks.WithLabelValues(cause.String())
		m.PrefixTokens.WithLabelValues(cause.String())
	}
	info := s.cfg.Node.Info()
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "coppice_build_info", Help: "Always 1. The labels are the version, Go's version, the backend and its arithmetic.",
		ConstLabels: prometheus.Labels{"model_name": s.cfg.Model, "version": s.cfg.Version, "go_version": runtime.Version(), "backend": info.Name, "numerics": info.NumericsID}},
		func() float64 { return 1 })
	keys := s.cfg.Keys
	if len(keys) == 0 {
		keys = []Key{{}}
	}
	for _, k := range keys {
		if m.accounts[k.Tenant] == nil {
			m.accounts[k.Tenant] = new(account)
		}
		if len(m.labelled) < s.cfg.TenantLabels {
			m.labelled[k.Tenant] = true
		}
		for _, counter := range []*prometheus.CounterVec{m.TenantRequests, m.TenantPrompt, m.TenantCached, m.TenantOutput, m.TenantServed} {
			counter.WithLabelValues(m.label(k.Tenant)) // begins at 0
		}
	}
	for _, c := range []prometheus.Collector{build, figures.Collector(names, s.scrape)} {
		if err := m.registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// otherTenants is the label of tenants beyond Config.TenantLabels.
const otherTenants = "other"

// label returns the label of a tenant in metrics.
func (m *metrics) label(tenant string) string {
	if m.labelled[tenant] {
		return tenant
	}
	return otherTenants
}

// known are the methods with a metric label of their own; others share "other".
var known = map[string]string{http.MethodGet: "GET", http.MethodHead: "HEAD", http.MethodPost: "POST", http.MethodDelete: "DELETE",
	http.MethodPut: "PUT", http.MethodPatch: "PATCH", http.MethodOptions: "OPTIONS"}

// answered counts a finished request. status is the HTTP status, or statusGone; total is the time
// since the request's arrival; slow means that the client read nothing for WriteTimeout.
func (m *metrics) answered(c *call, status int, slow bool, total time.Duration) {
	method := known[c.r.Method]
	if method == "" {
		method = "other"
	}
	m.Requests.WithLabelValues(c.at.path, method, strconv.Itoa(status)).Inc()
	if c.fault != nil && c.gone == nil {
		m.Refused.WithLabelValues(c.code()).Inc()
	}
	if !c.generates {
		return
	}
	c.s.retries.ended(c.start.Add(total))
	if c.gone != nil {
		m.Gone.Inc()
	}
	if slow {
		m.Slow.Inc()
	}
	b, tenant := &c.bill, m.label(c.caller.tenant)
	m.account(c.caller.tenant).add(b)
	m.TenantRequests.WithLabelValues(tenant).Inc()
	m.TenantPrompt.WithLabelValues(tenant).Add(float64(b.promptTokens))
	m.TenantCached.WithLabelValues(tenant).Add(float64(b.cachedTokens))
	m.TenantOutput.WithLabelValues(tenant).Add(float64(b.outputTokens))
	m.TenantServed.WithLabelValues(tenant).Add(float64(b.servedTokens))
	if status != http.StatusOK {
		return
	}
	m.Whole.Observe(total.Seconds())
	m.Prompts.Observe(float64(b.promptTokens))
	m.Outputs.Observe(float64(b.outputTokens))
	if b.outputTokens > 1 {
		m.PerToken.Observe((total - b.firstToken).Seconds() / float64(b.outputTokens-1))
	}
}

// serve returns the handler of /metrics.
func (m *metrics) serve() func(*call) error {
	h := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 8, Timeout: 10 * time.Second})
	return func(c *call) error {
		c.delegate(h)
		return nil
	}
}

// scrape is read for each GET /metrics. The tags of its fields define the Prometheus metrics.
type scrape struct {
	Up         bool        `metric:"up" help:"1 while the node runs and takes requests."`
	Conns      int64       `metric:"http_connections" help:"Open connections."`
	BodyBytes  int64       `metric:"http_body_bytes" help:"Bytes of the bodies of open requests."`
	MemoryUsed int64       `metric:"http_memory_bytes" help:"Bytes of memory that open requests hold: bodies, texts, conversations and outputs; and what is remembered of conversations to notice changed prefixes."`
	MemoryMost int64       `metric:"http_memory_limit_bytes" help:"Most bytes of memory that open requests may hold."`
	Stats      *view.Stats // nil if the node does not answer
	Events     *publisher  // nil if events are not published
}

// publisher has the fields of events.PublisherMetrics, by the same names.
type publisher struct {
	Events     uint64 `metric:"events_published_total" help:"Cache events that were numbered."`
	Batches    uint64 `metric:"events_batches_total" help:"Batches of events sent, heartbeats included."`
	Heartbeats uint64 `metric:"events_heartbeats_total" help:"Empty batches of events sent."`
	Bytes      uint64 `metric:"events_bytes_total" help:"Payload bytes of the batches of events."`
	Lost       uint64 `metric:"events_lost_total" help:"Batches of events that were dropped before they were sent."`
	SendErrors uint64 `metric:"events_send_errors_total" help:"Batches of events that a transport did not take."`
	Snapshots  uint64 `metric:"events_snapshots_total" help:"Snapshots made for readers."`
	HeldBlocks uint64 `metric:"events_held_blocks" help:"Blocks that events announced and did not remove, counted in each tier."`
	NextSeq    uint64 `metric:"events_next_sequence" help:"Sequence number of the next batch of events."`
}

// statsTimeout is the longest that a scrape waits for the current step to end.
const statsTimeout = 5 * time.Second

// stats returns the node's current figures.
func (s *Server) stats(ctx context.Context) (*view.Stats, error) {
	st, err := s.cfg.Node.Stats(ctx)
	if err != nil {
		return nil, err
	}
	info := s.cfg.Node.Info()
	figures := view.StatsOf(&info, &st)
	return &figures, nil
}

// scrape reads the figures for Prometheus. If the node does not answer in time, Stats is nil and
// Up false.
func (s *Server) scrape() scrape {
	ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
	defer cancel()
	all := scrape{Conns: s.metrics.conns.Load(), BodyBytes: s.bodies.Load(), MemoryUsed: s.memory.Used(), MemoryMost: s.memory.Most()}
	if s.cfg.Events != nil {
		all.Events = new(publisher)
		figures.Copy(all.Events, s.cfg.Events())
	}
	st, err := s.stats(ctx)
	if err != nil {
		return all
	}
	all.Up, all.Stats = s.failed.Load() == nil && !s.Draining(), st
	all.Stats.Tenants = s.metrics.summed(st.Tenants)
	return all
}

// summed adds up the figures of tenants that share a metric label: all tenants beyond
// Config.TenantLabels have the label "other". It returns one element per label, with the label in
// Tenant.
func (m *metrics) summed(tenants []view.Tenant) (sums []view.Tenant) {
	for _, t := range tenants {
		t.Tenant = m.label(t.Tenant)
		i := slices.IndexFunc(sums, func(sum view.Tenant) bool { return sum.Tenant == t.Tenant })
		if i < 0 {
			sums = append(sums, t)
			continue
		}
		sums[i].Running += t.Running
		sums[i].Waiting += t.Waiting
	}
	return sums
}

// account counts the finished requests of one tenant, since the start.
type account struct {
	sync.Mutex
	figures tenantFigures // Running, Waiting and ShareLeft stay 0
}

// tenantFigures is the answer of GET /v1/cache/stats to a key without admin rights. The names are
// those of the node's figures.
type tenantFigures struct {
	Running      int     `json:"running"`
	Waiting      int     `json:"waiting"`
	Requests     int64   `json:"requests"`
	PromptTokens int64   `json:"prompt_tokens"`
	CachedTokens int64   `json:"cached_tokens"`
	HitRate      float64 `json:"hit_rate"`
	OutputTokens int64   `json:"output_tokens"`
	ServedTokens int64   `json:"served_tokens"`
	ShareLeft    int64   `json:"share_left"`
}

// add counts a finished request by its bill.
func (a *account) add(b *bill) {
	a.Lock()
	defer a.Unlock()
	f := &a.figures
	f.Requests++
	f.PromptTokens += int64(b.promptTokens)
	f.CachedTokens += int64(b.cachedTokens)
	f.OutputTokens += int64(b.outputTokens)
	f.ServedTokens += int64(b.servedTokens)
	f.HitRate = float64(f.CachedTokens) / float64(max(f.PromptTokens, 1))
}

// read returns the figures.
func (a *account) read() tenantFigures {
	a.Lock()
	defer a.Unlock()
	return a.figures
}

// account returns the account of a tenant. Only tenants with keys have one that counts.
func (m *metrics) account(tenant string) *account {
	if a := m.accounts[tenant]; a != nil {
		return a
	}
	return new(account)
}
