package server

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/internal/web"
	"github.com/coppice-llm/coppice/kv"
)

// TestLogs: one line per request, with its id and token counts and without its text, at debug
// level unless configured. Probes are not logged.
func TestLogs(t *testing.T) {
	for _, access := range []bool{false, true} {
		core, logged := observer.New(zapcore.DebugLevel)
		b := start(t, setup{Server: Config{Log: zap.New(core), Keys: twoTenants, AccessLog: access}})
		b.key = "secret-of-a"
		secret := "the password is hunter2"
		b.ask("/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":5,"ignore_eos":true}`, secret))
		b.refused("POST", "/v1/completions", `{"prompt":"x","hunter2":1}`, 400, "unknown_parameter")
		b.refused("POST", "/v1/completions", `{"model":"hunter2","prompt":"x"}`, 404, "model_not_found")
		b.do("GET", "/health", "")
		b.do("GET", "/ready", "")
		b.do("GET", "/metrics", "")
		b.client.CloseIdleConnections()
		b.until(func(*coppice.Stats) bool { return b.srv.metrics.conns.Load() == 0 }) // the lines have been written
		lines := logged.FilterMessage("request").All()
		if len(lines) != 4 {
			t.Fatalf("%d lines: %v", len(lines), lines)
		}
		fields := lines[0].ContextMap()
		if fields["output_tokens"] != int64(5) || fields["tenant"] != "a" || fields["status"] != int64(200) || fields["request"] == "" || fields["reason"] != "length" || fields["ttft"].(time.Duration) <= 0 {
			t.Errorf("%v", fields)
		}
		for i, l := range lines {
			if want := access && i < 3; (l.Level == zap.InfoLevel) != want || (l.Level == zap.DebugLevel) == want {
				t.Errorf("with access lines %v, line %d is at level %v", access, i, l.Level)
			}
		}
		for _, l := range logged.All() {
			if s := fmt.Sprint(l.Message, l.ContextMap()); strings.Contains(s, "hunter2") || strings.Contains(s, "secret-of") {
				t.Errorf("logged %s", s)
			}
		}
	}
}

// TestTraces: one span per request, a child of its caller's, with its events and their times.
func TestTraces(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))
	defer provider.Shutdown(context.Background())
	b := start(t, setup{Server: Config{Tracer: provider.Tracer("test")}})
	req, err := http.NewRequest("POST", b.url+"/v1/completions", strings.NewReader(`{"prompt":"What is light?","max_tokens":5,"ignore_eos":true}`))
	b.ok(err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	res, err := b.client.Do(req)
	b.ok(err)
	drainBody(res)
	b.client.CloseIdleConnections()
	b.until(func(*coppice.Stats) bool { return b.srv.metrics.conns.Load() == 0 })
	all := spans.GetSpans()
	if len(all) != 1 || all[0].SpanContext.TraceID().String() != "0123456789abcdef0123456789abcdef" || all[0].Name != "POST /v1/completions" {
		t.Fatalf("%+v", all)
	}
	var events []string
	last := all[0].StartTime.Add(-time.Millisecond) // the scheduler's clock differs from the span's
	for _, e := range all[0].Events {
		events = append(events, e.Name)
		if e.Time.Before(last) || e.Time.After(all[0].EndTime) {
			t.Errorf("%s at %v, the one before at %v", e.Name, e.Time, last)
		}
		last = e.Time
	}
	if want := []string{"queued", "matched", "first chunk", "first token", "ended"}; !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
	for _, a := range all[0].Attributes {
		if strings.Contains(a.Value.String(), "light") {
			t.Errorf("attribute %v", a)
		}
	}
}

// TestMetricNames: the metrics that dashboards for vLLM and SGLang read exist.
func TestMetricNames(t *testing.T) {
	registry := prometheus.NewRegistry()
	b := start(t, setup{Server: Config{Registry: registry, Keys: twoTenants, TenantLabels: 2}})
	for _, key := range []string{"secret-of-a", "secret-of-b", "secret-of-root"} {
		b.key = key
		b.ask("/v1/completions", `{"prompt":"What is light?","max_tokens":5,"ignore_eos":true}`)
	}
	families, err := registry.Gather()
	b.ok(err)
	var names, tenants []string
	for _, f := range families {
		names = append(names, strings.TrimPrefix(f.GetName(), "coppice_"))
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "tenant" && !slices.Contains(tenants, l.GetValue()) {
					tenants = append(tenants, l.GetValue())
				}
			}
		}
	}
	for _, want := range []string{
		"time_to_first_token_seconds", "inter_token_latency_seconds", "request_time_per_output_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds",
		"request_prompt_tokens", "request_generation_tokens", "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prefix_cache_queries_total", "prefix_cache_hits_total",
		"prompt_tokens_total", "generation_tokens_total", "request_success_total", "num_preemptions_total", "evicted_tokens_total", "cached_tokens_total", "cache_hit_rate",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("no metric coppice_%s among %q", want, names)
		}
	}
	slices.Sort(tenants)
	if want := []string{"a", "b", "other"}; !slices.Equal(tenants, want) {
		t.Errorf("tenants %q, want %q", tenants, want)
	}
}

// TestTLS: HTTP/2 and 1.1 work, and a stream may be silent for longer than the write timeout.
// The test uses a fake clock that advances only while all goroutines wait.
func TestTLS(t *testing.T) {
	start(t, setup{}) // actors' shared goroutines must not belong to the fake clock
	synctest.Test(t, overTLS)
}

func overTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	p, err := sim.ProfileByName("cpu2")
	if err != nil {
		t.Fatal(err)
	}
	p.Eff.Step = 0.1
	l := newFakeListener()
	b := start(t, setup{Listener: l, Sim: &sim.Config{Profile: p, Pages: 256}, Server: Config{
		TLS:          &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"h2", "http/1.1"}},
		WriteTimeout: 50 * time.Millisecond,
	}})
	b.url = "https://" + b.address
	for _, proto := range []string{"HTTP/2.0", "HTTP/1.1"} {
		transport := &http.Transport{DialContext: l.dial, TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: proto == "HTTP/2.0"}
		b.client = &http.Client{Transport: transport}
		for _, stream := range []bool{true, false} {
			a := b.do("POST", "/v1/completions", fmt.Sprintf(`{"prompt":"x","max_tokens":4,"ignore_eos":true,"stream":%v}`, stream))
			if a.StatusCode != 200 || a.Proto != proto || stream && !strings.HasSuffix(string(a.body), "data: [DONE]\n\n") {
				t.Errorf("%s: %s %s %s", proto, a.Proto, a.Status, a.body)
			}
		}
		transport.CloseIdleConnections()
	}
}

// TestPanic: a panic ends only its own request.
func TestPanic(t *testing.T) {
	core, logged := observer.New(zapcore.ErrorLevel)
	b := start(t, setup{Server: Config{Log: zap.New(core)}})
	at := &endpoint{path: "/panic", serve: func(*call) error { panic("oh") }}
	b.srv.routes.HandleFunc("/panic", func(w http.ResponseWriter, r *http.Request) { b.srv.serve(w, r, at) })
	b.refused("GET", "/panic", "", 500, "internal_error")
	if logged.Len() != 1 {
		t.Errorf("logged %v", logged.All())
	}
	b.quiet()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.srv.Shutdown(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestConfig: all faults are reported at once, by field.
func TestConfig(t *testing.T) {
	_, err := New(Config{MaxConns: -1, WriteTimeout: -time.Second, MaxBodyBytes: 100, MaxBodiesBytes: 10})
	for _, want := range []string{"Node", "Model", "MaxConns is -1", "WriteTimeout is -1s", "MaxBodiesBytes is 10"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %s", err, want)
		}
	}
}

// TestPassAllocatesNothing: the server's work per token, besides writing it, does not allocate.
func TestPassAllocatesNothing(t *testing.T) {
	b := start(t, setup{Server: Config{Page: true}})
	c := &call{s: b.srv, w: discard{}, client: web.NewClient(discard{}, &http.Request{ProtoMajor: 1}, time.Minute), r: &http.Request{ProtoMajor: 1}, start: time.Now()}
	g := c.newGauge(1, 1)
	p := &piece{Piece: coppice.Piece{Text: " light", Tokens: make([]kv.Token, 1)}}
	buf := []byte("data: {}\n\n")
	now := c.start
	if n := testing.AllocsPerRun(1000, func() {
		now = now.Add(time.Millisecond)
		g.pass(now, p)
		c.client.Extend()
		c.write(buf)
		c.flush()
		c.client.Rest()
	}); n != 0 {
		t.Errorf("%v allocations a token", n)
	}
}

type discard struct{}

func (discard) Header() http.Header              { return http.Header{} }
func (discard) Write(b []byte) (int, error)      { return len(b), nil }
func (discard) WriteHeader(int)                  {}
func (discard) Flush()                           {}
func (discard) SetWriteDeadline(time.Time) error { return nil }

// TestScrapedWhileMade: a program may read its registry while it makes a server with it.
func TestScrapedWhileMade(t *testing.T) {
	b := start(t, setup{})
	cfg := Config{Node: b.node, Model: "nano", Registry: prometheus.NewRegistry()}
	for i := range 1000 { // New takes some time for each
		cfg.Keys = append(cfg.Keys, Key{Secret: fmt.Sprintf("secret-of-%d", i), Tenant: fmt.Sprint(i)})
	}
	made, read := make(chan struct{}), make(chan error, 1)
	go func() {
		var failed error
		for {
			_, err := cfg.Registry.Gather()
			failed = cmp.Or(failed, err)
			select {
			case <-made:
				read <- failed
				return
			default:
			}
		}
	}()
	srv, err := New(cfg)
	close(made)
	b.ok(errors.Join(err, <-read))
	b.ok(srv.Close())
}
