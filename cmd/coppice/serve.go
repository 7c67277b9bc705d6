package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/coppice-llm/coppice/fleet"
	"github.com/coppice-llm/coppice/internal/eventurl"
	"github.com/coppice-llm/coppice/internal/hub"
	"github.com/coppice-llm/coppice/server"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// serveCmd is coppice serve; see package server.
type serveCmd struct {
	nodeFlags
	fleetFlags
	Config      string    `type:"path" placeholder:"FILE" help:"JSON file with flags as keys, as {\"addr\": \":8080\"}, and with tenants, see --help above."`
	PrintConfig printMode `name:"print-config" help:"Print each setting and where it is from, and exit; --print-config=json prints a file for --config instead, without keys."`

	Addr      string      `default:"127.0.0.1:8080" help:"Address to listen at. Others than this machine need one like :8080, and then keys."`
	ModelName []string    `name:"model-name" placeholder:"NAME" help:"What requests call the model: names separated by commas, of which answers and metrics say the first. Default: the name of its directory or file."`
	Backend   backendName `default:"cpu" help:"What computes: cpu, cuda (an NVIDIA GPU), ptxvm (the CUDA kernels in an interpreter, far too slow to serve anybody), or sim, a simulated device in real time, whose text means nothing, to test load."`
	Profile   string      `default:"h200" placeholder:"NAME" help:"Device that sim simulates: h200, h100, a100 or cpu2, or a JSON file."`

	SimPoison int  `name:"sim-poison" default:"-1" placeholder:"TOKEN" help:"Lose the simulated device when a prompt has this token, to rehearse what clients, routers and supervisors do then."`
	SimLogits bool `name:"sim-logits" help:"Have sim make logits, for log-probabilities and penalties, which it refuses otherwise. A token then costs this machine as much time as the vocabulary is large."`

	KVMemory     byteSize `name:"kv-memory" placeholder:"SIZE" help:"Size of the KV pool, as 4GiB, instead of --kv-tokens."`
	PinnedTokens int      `name:"pinned-tokens" placeholder:"N" min:"0" help:"Tokens that /v1/cache/pin may keep. Default: an eighth of the pool."`
	cacheFlags
	tierFlags
	MaxRequests      int `name:"max-requests" default:"1024" min:"1" help:"Requests that may be open, waiting ones included; more get status 429."`
	MaxRunning       int `name:"max-running" default:"0" min:"0" help:"Requests that run at a time. Default: 64 on cpu, 256 on cuda and sim."`
	MaxQueued        int `name:"max-queued" default:"0" min:"0" help:"Requests that may wait, of those. Default: --max-requests, and with --displace three quarters of what it leaves beside --max-running."`
	DefaultMaxTokens int `name:"default-max-tokens" default:"0" min:"0" help:"Output limit of chats that give none. Default: what is left of the model's positions and of the pool; 256 on sim."`

	Displace bool `help:"In a full queue a request of higher priority ends the waiting one of lowest priority, with status 429."`

	PreemptThreshold int           `name:"preempt-threshold" default:"1" min:"1" help:"With --policy priority: how far the priority of a waiting request must be above that of a running one to take its place."`
	ITLTarget        time.Duration `name:"itl-target" default:"50ms" min:"0s" help:"How long a step may take while requests decode: prompts get what of --step-tokens fits, by what steps took before. A prompt alone gets all. 0: only --step-tokens bounds a step."`

	PromptFloor int `name:"prompt-floor" default:"0" help:"Part of --step-tokens that is kept for prompts, however many requests decode. Default: a quarter; negative: none."`

	Quantum int           `default:"4096" min:"1" help:"Under --policy dlpm: tokens by which the order by cached prefixes may drive tenants apart; at least twice what a usual request computes."`
	DebtAge time.Duration `name:"debt-age" default:"10m" help:"Under --policy dlpm: how long a tenant that has nothing open is remembered to be ahead of the others."`

	Curve bool `default:"true" negatable:"" help:"Track what hit rate other cache sizes would have, for the page."`

	APIKey     string `name:"api-key" placeholder:"KEY" help:"A key that requests must have, of an admin. Better in COPPICE_API_KEY: others see flags."`
	APIKeyFile string `name:"api-key-file" type:"path" placeholder:"FILE" help:"Keys, a line each: \"acme: sk-acme-1f3a\", with \" admin\" at the end for one who may flush, pin and profile; see above."`
	doorFlags
	ControlTokens    chat.ControlMode     `name:"control-tokens" default:"allow" help:"What becomes of control tokens, as <|im_end|>, that a caller writes into a message: allow (they act as such), refuse (status 400), or text (they are text)."`
	UnknownFields    server.UnknownFields `name:"unknown-fields" default:"refuse" help:"What becomes of fields of requests that are neither known nor known to be harmless: refuse (status 400) or ignore. The header x-coppice-ignored names those that were ignored."`
	SamplingDefaults samplingDefaults     `name:"sampling-defaults" default:"model" help:"How to sample for requests that don't say: model (what generation_config.json or the GGUF file recommends: temperature, top_p, top_k, min_p, repetition_penalty) or neutral (temperature 1, all else off)."`
	TLSCert          string               `name:"tls-cert" type:"path" placeholder:"FILE" help:"Certificate chain, PEM. With --tls-key, speaks TLS."`
	TLSKey           string               `name:"tls-key" type:"path" placeholder:"FILE" help:"Its private key, PEM."`
	Drain            time.Duration        `default:"30s" min:"0s" help:"How long running requests may go on after SIGTERM or an interrupt. A second one ends them at once."`
	FailedGrace      time.Duration        `name:"failed-grace" default:"5s" min:"0s" help:"How long to answer 503 after the device has failed. Then the process exits with status 3, for a supervisor to start it anew."`
	MaxBody          byteSize             `name:"max-body" default:"8MiB" min:"1" help:"Longest body of a request."`
	MaxTokenize      byteSize             `name:"max-tokenize" default:"1MiB" min:"1" help:"Longest body of /tokenize and /detokenize, whose answers are longer."`
	MaxConns         int                  `name:"max-conns" default:"8192" min:"1" help:"Connections at a time; over a few more, /health and /ready are answered, and all else gets status 503."`
	MaxTimeout       time.Duration        `name:"max-timeout" default:"10m" min:"1ns" help:"Longest time that a request may take."`
	WriteTimeout     time.Duration        `name:"write-timeout" default:"30s" min:"1ns" help:"How long a client may take nothing of its answer."`
	Page             bool                 `default:"true" negatable:"" help:"Serve the live page at /."`
	MetricAliases    string               `name:"metric-aliases" default:"vllm" enum:"vllm,none" help:"Names of another server that metrics also go by: vllm (vllm:num_requests_running and the like, for its dashboards and endpoint pickers) or none."`
	Pprof            bool                 `help:"Serve /debug/pprof/, to admins."`
	OTLPEndpoint     string               `name:"otlp-endpoint" placeholder:"URL" help:"Send a trace of each request there, by OTLP over HTTP."`
	OTLPSample       float64              `name:"otlp-sample" default:"1" min:"0" max:"1" help:"Share of requests to trace, 0 to 1."`
	AccessLog        bool                 `name:"access-log" help:"Log a line for each request, but for health probes. Otherwise that is at debug level."`
	logFlags

	settings serveSettings `kong:"-"`
	cached   *hub.Model    // model of the cache, used without --model
}

// Help is printed by kong under the summary.
func (*serveCmd) Help() string {
	return `An OpenAI-compatible server: /v1/completions, /v1/chat/completions, /v1/models,
/tokenize, /metrics and more; /openapi.json describes them. The live page is at /.

Without --model it takes the model of Hugging Face's cache (HF_HUB_CACHE, HF_HOME) that was
put there last, can be loaded and takes no more than half the memory; without such a one a
generated model. sim and ptxvm always take that.

Each flag may also be set by the environment, --kv-tokens as COPPICE_KV_TOKENS, or in
--config; flags go before the environment, and that before the file. The file may
also have "tenant" and "tenants", limits of each tenant and of those by name:

  {"addr": ":8080", "api-key-file": "keys.txt",
   "tenant": {"max-running": 32}, "tenants": {"acme": {"weight": 3, "max-queued": 100, "cache-tokens": 20000}}}

A file of --api-key-file names the tenant of each key, and the administrators:

  # tenant: key
  acme: sk-acme-1f3a
  ops:  sk-ops-77d0 admin

"cache-tokens" bounds what a tenant keeps in the cache of requests without cache_salt;
"cache-min-tokens" is what it keeps while other tenants have anything that can go.

Under --policy dlpm, the default with --api-key-file, tenants are served equally, by weight,
counted in tokens that were computed for them: the metric coppice_tenant_served_tokens_total, and served_tokens and
share_left of each at /v1/cache/stats. A tenant is what a key in --api-key-file names.
` + fleetHelp + `
The exit status is 0 after a drain, 1 if the server can't start, and 3 if its device or
what drives it has failed: a supervisor should start it anew then.

Examples:
  coppice serve
  coppice serve --model hf:bartowski/SmolLM2-135M-Instruct-GGUF:Q8_0
  coppice serve --model ./llama --kv-memory 4GiB --policy lpm
  coppice serve --eviction cost-aware --cache-ttl 1h
  coppice serve --kv-host 4GiB --kv-disk /var/cache/coppice:20GiB
  coppice serve --backend sim --profile h200 --max-running 1024
  coppice serve --policy priority --preempt-threshold 10 --max-queued 100 --displace
  COPPICE_API_KEY=... coppice serve --addr :8080 --print-config
  coppice serve --addr :8080 --api-key-file keys.txt --print-config=json >coppice.json
  coppice serve --config coppice.json
  coppice serve --addr :8080 --publish "zmq://*:5557" --name worker-1
  coppice serve --addr :8080 --publish nats://nats-1:4222,nats-2:4222 --advertise http://10.0.0.7:8080
  coppice serve --addr :8080 --publish nats://nats-1:4222 --pool fast`
}

// Run is called by kong.
func (c *serveCmd) Run(ctx context.Context) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	if c.PrintConfig != "" {
		return c.settings.print(os.Stdout, c.PrintConfig, c.settings.printTenants)
	}
	keys, err := readKeys(c.APIKey, c.APIKeyFile)
	if err != nil {
		return err
	}
	certificates, err := readCertificates(c.TLSCert, c.TLSKey)
	if err != nil {
		return err
	}
	log, err := c.log()
	if err != nil {
		return err
	}
	defer log.Sync()
	c.settings.warn(log)
	l, err := net.Listen("tcp", c.Addr) // before the rest, which takes long: fails early if the port is taken
	if err != nil {
		return fmt.Errorf("--addr: %w", err)
	}
	defer l.Close()

	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	dir, remove, err := c.findModel(ctx)
	if err != nil {
		return err
	}
	served, err := unlessEnded(ctx, "the model was read", func() (*served, error) { return c.open(dir, log) })
	remove() // the model is in memory
	if err != nil {
		return err
	}
	var w *fleet.Worker
	defer func() {
		err = errors.Join(err, closeNode(served.node))
		if w != nil {
			err = errors.Join(err, w.Close()) // after the node, so that all its events are published
		}
	}()
	if w, err = c.join(served, l.Addr(), len(keys) > 0, log.Named("worker")); err != nil {
		return err
	}
	tracer, stopTracing, err := c.tracing(ctx)
	if err != nil {
		return err
	}
	defer stopTracing()
	cfg := server.Config{
		Node: served.node, Model: served.names[0], Aliases: served.names[1:], Sampling: served.sampling, TokenizerInfo: served.tokenizerInfo, Template: served.node.Template(), Created: served.created, Keys: keys, TLS: certificates, Controls: c.ControlTokens, UnknownFields: c.UnknownFields, AllowHosts: c.hosts(w.Card().URL), CORS: c.CORS,
		MaxBodyBytes: int(c.MaxBody), MaxTokenizeBytes: int(min(c.MaxTokenize, c.MaxBody)), MaxConns: c.MaxConns, MaxChoices: min(maxChoices, c.MaxRequests), MaxTimeout: c.MaxTimeout, WriteTimeout: c.WriteTimeout,
		Card: w.Card(), Bundle: served.bundle, Page: c.Page, PageNote: served.note(), Version: version(), MetricAliases: c.MetricAliases, Pprof: c.Pprof, Log: log, AccessLog: c.AccessLog,
	}
	if tracer != nil {
		cfg.Tracer = tracer.Tracer("github.com/coppice-llm/coppice/server")
	}
	if w.Publishes() {
		cfg.Events = w.Metrics
	}
	srv, err := server.New(cfg)
	if err != nil {
		return err
	}
	greetWorker(os.Stderr, w)
	c.greet(os.Stderr, l.Addr(), served, len(keys) > 0)
	return c.serve(srv, l, served.node, w, signals, log)
}

// maxChoices is the most outputs of a request, if --max-requests allows as many. A request
// for more could never be admitted, and would be told to retry forever.
const maxChoices = 128

// check reports faults of combinations of flags, and those that kong does not find.
func (c *serveCmd) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := checkAddr(c.Addr); err != nil {
		errs = append(errs, err)
	}
	if c.KVMemory > 0 && c.settings.given("kv-tokens") {
		bad("--kv-memory and --kv-tokens both say how large the pool is: leave one out")
	}
	if c.settings.given("kv-type") && c.Backend != "cpu" {
		bad("--kv-type is for --backend cpu")
	}
	if (c.settings.given("gpu") || c.settings.given("gpu-memory")) && c.Backend != "cuda" {
		bad("--gpu and --gpu-memory are for --backend cuda")
	}
	if !(c.GPUMemory > 0 && c.GPUMemory <= 1) {
		bad("--gpu-memory is %v, want more than 0 and at most 1", c.GPUMemory)
	}
	if c.settings.given("profile") && c.Backend != "sim" {
		bad("--profile is for --backend sim")
	}
	if (c.SimLogits || c.SimPoison >= 0) && c.Backend != "sim" {
		bad("--sim-logits and --sim-poison are for --backend sim")
	}
	if at := c.OTLPEndpoint; at != "" { // checked here, as the exporter would only log a bad one
		u, err := url.Parse(at)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User == nil && strings.Contains(at, "@") {
			bad("--otlp-endpoint is %.80q, want a URL like http://host:4318/v1/traces", eventurl.Redact(at))
		}
	}
	if err := c.doorFlags.check(); err != nil {
		errs = append(errs, err)
	}
	if err := c.tierFlags.check(c.settings.given); err != nil {
		errs = append(errs, err)
	}
	if err := c.fleetFlags.check(c.PageTokens); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, c.checkNames())...)
}

// checkNames reports empty and duplicate names of the model.
func (c *serveCmd) checkNames() error {
	for i, name := range c.ModelName {
		if strings.TrimSpace(name) == "" || slices.Contains(c.ModelName[:i], name) {
			return fmt.Errorf("--model-name has %q among %q, want different names, separated by commas", name, c.ModelName)
		}
	}
	return nil
}

// tracing returns the provider of traces and a function that flushes and closes it. The
// provider is nil without --otlp-endpoint.
func (c *serveCmd) tracing(ctx context.Context) (*trace.TracerProvider, func(), error) {
	if c.OTLPEndpoint == "" {
		return nil, func() {}, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(c.OTLPEndpoint))
	if err != nil {
		return nil, nil, fmt.Errorf("--otlp-endpoint %s: %w", eventurl.Redact(c.OTLPEndpoint), err)
	}
	p := trace.NewTracerProvider(trace.WithBatcher(exporter),
		trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(c.OTLPSample))),
		trace.WithResource(resource.NewSchemaless(attribute.String("service.name", "coppice"), attribute.String("service.version", version()))))
	return p, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		p.Shutdown(ctx) // spans that cannot be sent are lost
	}, nil
}

// version returns the module version of this build, "devel" for one from a checkout.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// greet prints the model, the address and an example request.
func (c *serveCmd) greet(w io.Writer, at net.Addr, s *served, keys bool) {
	scheme := "http"
	if c.TLSCert != "" {
		scheme = "https"
	}
	url := scheme + "://" + reachable(at.String())
	info := s.node.Info()
	fmt.Fprintf(w, "coppice: serving %s on %s (%s), %d KV tokens in pages of %d\n", strings.Join(s.names, ", "), info.Name, info.NumericsID, info.NumPages*info.PageTokens, info.PageTokens)
	if c.cached != nil {
		fmt.Fprintf(w, "coppice: no --model given: this is %v of the cache, and coppice models lists others\n", c.cached.Ref)
	}
	switch note := s.note(); {
	case note != "" && c.Model == "" && s.device == "" && c.cached == nil:
		fmt.Fprintf(w, "coppice: no --model given: %s; for a real one: coppice pull %s\n", note, exampleModel)
	case note != "":
		fmt.Fprintf(w, "coppice: %s\n", note)
	}
	if how := describeSampling(s.sampling); how != "" {
		fmt.Fprintf(w, "coppice: requests that don't say how to sample get what the model recommends: %s (--sampling-defaults neutral for none)\n", how)
	}
	auth := ""
	if keys {
		auth = " -H 'Authorization: Bearer KEY'"
	}
	fmt.Fprintf(w, "coppice: try  curl %s/v1/completions%s -H 'Content-Type: application/json' -d '{\"prompt\": \"What is light?\", \"max_tokens\": 32}'\n", url, auth)
	if c.Page {
		fmt.Fprintf(w, "coppice: look at %s/\n", url)
	}
	if host, _, err := net.SplitHostPort(at.String()); err == nil && !keys && !net.ParseIP(host).IsLoopback() {
		fmt.Fprintln(w, "coppice: other machines can reach this, and no key is asked for: see --api-key-file")
	}
}

// note explains why the generated text has no meaning; empty for a real model.
func (s *served) note() string {
	switch {
	case s.device != "":
		return "the device is simulated (" + s.device + "), the text means nothing"
	case s.generated:
		return "the weights are random, the text means nothing"
	}
	return ""
}

// reachable returns an address that a client on this machine can use: 127.0.0.1 in place of
// an unspecified host.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}
