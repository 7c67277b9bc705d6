package server

import (
	"net/http"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are what the server counts itself. Names and meanings are vLLM's and SGLang's
// where those have one, with the prefix coppice_. What the node counts is in collect.go.
type metrics struct {
	registry *prometheus.Registry

	firstToken prometheus.Histogram
	nextToken  prometheus.Histogram
	perToken   prometheus.Histogram
	whole      prometheus.Histogram
	queued     prometheus.Histogram
	prompts    prometheus.Histogram
	outputs    prometheus.Histogram

	requests *prometheus.CounterVec // by path, method and status
	refused  *prometheus.CounterVec // by why
	gone     prometheus.Counter
	slow     prometheus.Counter
	conns    atomic.Int64

	byTenant    tenantVecs
	tenants     map[string]*tenantMeter
	others      *tenantMeter
	tenantLimit int
}

// tenantVecs tell tenants apart.
type tenantVecs struct {
	requests, prompt, cached, output, served *prometheus.CounterVec
}

// tenantMeter is bound to one tenant.
type tenantMeter struct {
	requests, prompt, cached, output, served prometheus.Counter
}

// latency has a bucket for each step of about 1.8, from half a millisecond, less than
// which no step of a real model takes, to the minute after which nobody waits.
var latency = []float64{.0005, .001, .002, .003, .005, .0075, .01, .015, .02, .03, .04, .06, .08, .1, .15, .2, .3, .5, .75, 1, 1.5, 2.5, 5, 10, 20, 30, 60}

// sizes are tokens.
var sizes = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072}

func newMetrics(s *Server) (*metrics, error) {
	m := &metrics{registry: s.cfg.Registry, tenants: map[string]*tenantMeter{}, tenantLimit: s.cfg.TenantLabels}
	labels := prometheus.Labels{"model_name": s.cfg.Model}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "coppice_" + name, Help: help, Buckets: buckets, ConstLabels: labels})
	}
	counters := func(name, help string, by ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "coppice_" + name, Help: help, ConstLabels: labels}, by)
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "coppice_" + name, Help: help, ConstLabels: labels})
	}
	m.firstToken = histogram("time_to_first_token_seconds", "From a request's arrival to the first token of each of its choices.", latency)
	m.nextToken = histogram("inter_token_latency_seconds", "Between two tokens of a choice; where several come at once, the mean of them.", latency)
	m.perToken = histogram("request_time_per_output_token_seconds", "From a request's first token to its end, by the tokens after the first.", latency)
	m.whole = histogram("e2e_request_latency_seconds", "From a request's arrival to the end of its answer.", latency)
	m.queued = histogram("request_queue_time_seconds", "From a request's tokens being known to its first turn.", latency)
	m.prompts = histogram("request_prompt_tokens", "Prompt tokens of a request.", sizes)
	m.outputs = histogram("request_generation_tokens", "Output tokens of a request.", sizes)
	m.requests = counters("http_requests_total", "Requests by path, method and status; 499: the client had gone.", "path", "method", "status")
	m.refused = counters("request_errors_total", "Requests that were refused or failed, by the code of the error.", "code")
	m.gone = counter("client_disconnects_total", "Requests for tokens whose client left before the end.")
	m.slow = counter("slow_clients_total", "Of those, the ones that took nothing of their answer for too long.")
	m.byTenant = tenantVecs{
		requests: counters("tenant_requests_total", "Requests for tokens by tenant.", "tenant"),
		prompt:   counters("tenant_prompt_tokens_total", "Prompt tokens by tenant.", "tenant"),
		cached:   counters("tenant_cached_tokens_total", "Of these, the ones from the cache.", "tenant"),
		output:   counters("tenant_generation_tokens_total", "Output tokens by tenant.", "tenant"),
		served:   counters("tenant_served_tokens_total", "Tokens computed by tenant: of prompts what was not cached, for each choice, and outputs. What --policy dlpm shares.", "tenant"),
	}
	conns := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "coppice_http_connections", Help: "Open connections.", ConstLabels: labels},
		func() float64 { return float64(m.conns.Load()) })
	bodies := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "coppice_http_body_bytes", Help: "Bodies of open requests.", ConstLabels: labels},
		func() float64 { return float64(s.bodies.Load()) })
	info := s.cfg.Node.Info()
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "coppice_build_info", Help: "Always 1: the labels are version, Go's version, the backend and its arithmetic.",
		ConstLabels: prometheus.Labels{"model_name": s.cfg.Model, "version": s.cfg.Version, "go_version": runtime.Version(), "backend": info.Name, "numerics": info.NumericsID}},
		func() float64 { return 1 })
	all := []prometheus.Collector{
		build,
		m.firstToken, m.nextToken, m.perToken, m.whole, m.queued, m.prompts, m.outputs,
		m.requests, m.refused, m.gone, m.slow, conns, bodies,
		m.byTenant.requests, m.byTenant.prompt, m.byTenant.cached, m.byTenant.output, m.byTenant.served,
		newCollector(s, labels),
	}
	if s.cfg.Events != nil {
		all = append(all, newEventsCollector(s.cfg.Events, labels))
	}
	for _, c := range all {
		if err := m.registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// tenant binds the meters of a tenant, or those of all others when there are
// TenantLabels already. It is for New.
func (m *metrics) tenant(name string) *tenantMeter {
	if t := m.tenants[name]; t != nil {
		return t
	}
	label := name
	if len(m.tenants) >= m.tenantLimit {
		if m.others != nil {
			return m.others
		}
		label = otherTenants
	}
	t := &tenantMeter{
		m.byTenant.requests.WithLabelValues(label), m.byTenant.prompt.WithLabelValues(label),
		m.byTenant.cached.WithLabelValues(label), m.byTenant.output.WithLabelValues(label), m.byTenant.served.WithLabelValues(label),
	}
	if label == otherTenants && name != otherTenants {
		m.others = t
	} else {
		m.tenants[name] = t
	}
	return t
}

// otherTenants is the label of tenants beyond Config.TenantLabels.
const otherTenants = "other"

// label is what a tenant is called in metrics.
func (m *metrics) label(tenant string) string {
	if m.tenants[tenant] != nil {
		return tenant
	}
	return otherTenants
}

// known are the methods that have a label of their own.
var known = map[string]string{http.MethodGet: "GET", http.MethodHead: "HEAD", http.MethodPost: "POST", http.MethodDelete: "DELETE",
	http.MethodPut: "PUT", http.MethodPatch: "PATCH", http.MethodOptions: "OPTIONS"}

// answered counts a request that is over.
func (m *metrics) answered(c *call, status int, slow bool, total time.Duration) {
	method := known[c.r.Method]
	if method == "" {
		method = "other"
	}
	m.requests.WithLabelValues(c.at.path, method, strconv.Itoa(status)).Inc()
	if c.fault != nil && c.gone == nil {
		m.refused.WithLabelValues(c.code()).Inc()
	}
	if !c.generates {
		return
	}
	c.s.pace.ended(c.start.Add(total))
	if c.gone != nil {
		m.gone.Inc()
	}
	if slow {
		m.slow.Inc()
	}
	b, t := &c.bill, c.who.meter
	t.requests.Inc()
	t.prompt.Add(float64(b.promptTokens))
	t.cached.Add(float64(b.cachedTokens))
	t.output.Add(float64(b.outputTokens))
	t.served.Add(float64(b.servedTokens))
	if status != http.StatusOK {
		return
	}
	m.whole.Observe(total.Seconds())
	m.prompts.Observe(float64(b.promptTokens))
	m.outputs.Observe(float64(b.outputTokens))
	if b.outputTokens > 1 {
		m.perToken.Observe((total - b.firstToken).Seconds() / float64(b.outputTokens-1))
	}
}

// serve answers /metrics.
func (m *metrics) serve() func(*call) error {
	h := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 8, Timeout: 10 * time.Second})
	return func(c *call) error {
		c.foreign(h)
		return nil
	}
}
