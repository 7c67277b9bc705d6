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
	"slices"
	"strings"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/coppice-llm/coppice/cmd/internal/hub"
	"github.com/coppice-llm/coppice/events/eventurl"
	"github.com/coppice-llm/coppice/fleet"
	"github.com/coppice-llm/coppice/grammar/toolcall"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/server"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// serveCmd is coppice serve; see package server.
type serveCmd struct {
	nodeFlags
	fleetFlags
	Config string `type:"path" placeholder:"FILE" help:"JSON file of settings and tenants, for example {\"addr\": \":8080\"}; see above."`

	Addr      string   `default:"127.0.0.1:8080" help:"Address to listen on. To accept other machines, use one like :8080 and set keys."`
	ModelName []string `name:"model-name" placeholder:"NAME" help:"Names of the model in requests, separated by commas. Answers and metrics use the first. * after others stands for any name, for clients that ask for models by names of their own. Default: the name of its directory or file."`
	Backend   string   `default:"cpu" enum:"${backends}" help:"Device that computes: cpu, cuda (an NVIDIA GPU), ptxvm (the CUDA kernels in an interpreter, too slow for service), or sim (a simulated device in real time, for load tests; its text means nothing)."`
	Profile   string   `backend:"sim" default:"h200" placeholder:"NAME" help:"Simulated device: h200, h100, a100, cpu2 or a JSON file. For --backend sim."`

	SimPoison int  `name:"sim-poison" backend:"sim" default:"-1" placeholder:"TOKEN" help:"Make the simulated device fail when a prompt has this token, to rehearse the failure of a device."`
	SimLogits bool `name:"sim-logits" backend:"sim" help:"Let the simulated device make logits, which log-probabilities and penalties need. Each token then costs CPU time in proportion to the vocabulary."`

	KVMemory     byteSize `name:"kv-memory" placeholder:"SIZE" help:"Size of the KV pool in bytes, for example 4GiB, instead of --kv-tokens."`
	PinnedTokens int      `name:"pinned-tokens" placeholder:"N" min:"0" help:"Most tokens that /v1/cache/pin may pin. Default: an eighth of the pool."`
	cacheFlags
	tierFlags
	MaxRequests      int `name:"max-requests" default:"1024" min:"1" help:"Most open requests, running and waiting. More get status 429."`
	MaxRunning       int `name:"max-running" default:"0" min:"0" help:"Most running requests. Default: 64 on cpu, 256 on cuda and sim."`
	MaxQueued        int `name:"max-queued" default:"0" min:"0" help:"Most waiting requests. Default: --max-requests; with --displace three quarters of (--max-requests minus --max-running)."`
	DefaultMaxTokens int `name:"default-max-tokens" default:"0" min:"0" help:"Output limit of chats without max_tokens. Default: as many as the model's context and the pool allow; 256 on sim."`

	Displace bool `help:"When the queue is full, let a request of higher priority displace the waiting one of lowest priority, which gets status 429."`

	PreemptThreshold int           `name:"preempt-threshold" default:"1" min:"1" help:"With --policy priority: a waiting request preempts a running one if its priority is higher by at least this much."`
	ITLTarget        time.Duration `name:"itl-target" default:"50ms" min:"0s" help:"Longest step while requests decode: prompts get as many of --step-tokens as fit, by measured step times. Without decoding requests prompts get all of --step-tokens. 0: no limit by time."`

	PromptFloor int `name:"prompt-floor" default:"0" help:"Tokens of each step reserved for prompts, however many requests decode. Default: a quarter of --step-tokens; negative: none."`

	Quantum int           `default:"4096" min:"1" help:"With --policy dlpm: tokens by which the service of tenants may differ for the sake of cached prefixes. Use at least twice the tokens that a typical request computes."`
	DebtAge time.Duration `name:"debt-age" default:"10m" help:"With --policy dlpm: how long the debt of a tenant without open requests is kept."`

	Curve bool `default:"true" negatable:"" help:"Estimate the hit rates of other cache sizes, for the page."`

	serverFlags
	ControlTokens    chat.ControlMode     `name:"control-tokens" default:"allow" help:"Control tokens, such as <|im_end|>, in callers' messages: allow (they act as control tokens), refuse (status 400) or text (they count as plain text)."`
	ToolsPrompt      chat.ToolsPrompt     `name:"tools-prompt" default:"auto" help:"Tools, calls and results that the model's chat template does not print: auto (the server describes them in the system message, in Hermes' form), template (the template gets conversations unchanged; status 400 if it leaves out the tools) or none (status 400)."`
	PrefixWatch      bool                 `name:"prefix-watch" default:"true" negatable:"" help:"Compare each turn of a conversation with the one before, and tell clients that change what it begins with: by the header x-coppice-prefix-break, metrics, the live page and a line in the log."`
	StripNonces      string               `name:"strip-nonces" enum:"auto,off" default:"auto" help:"Blocks of system prompts that differ in each request and tell the model nothing, such as a billing header: auto (they are left out of the prompt, so that its prefix is found in the cache; the header x-coppice-stripped says so) or off."`
	UnknownFields    server.UnknownFields `name:"unknown-fields" default:"refuse" help:"Unknown fields of requests: refuse (status 400) or ignore. The header x-coppice-ignored names ignored fields; fields known to be harmless are always ignored."`
	ToolParser       string               `name:"tool-parser" enum:"auto,${toolforms}" default:"auto" help:"Form in which the model writes tool calls: auto (that of the calls in its chat template, or hermes), ${abouttoolforms}."`
	Pooling          string               `default:"auto" enum:"auto,last,mean" help:"How embeddings are made of the states at a text's tokens: last (the state at the last token; only what is not cached is computed), mean (the mean of all; the whole text is computed) or auto (as the GGUF file or modules.json of sentence-transformers says, else last)."`
	MaxInputs        int                  `name:"max-inputs" default:"2048" min:"1" max:"2048" help:"Most texts in one request for embeddings."`
	ResponsesDir     string               `name:"responses-dir" type:"path" placeholder:"DIR" help:"Directory for the responses of /v1/responses that are stored, in plain text, so that they outlive the process. One server may use it. Default: in memory."`
	ResponsesBytes   byteSize             `name:"responses-bytes" default:"64MiB" min:"1B" max:"1TiB" placeholder:"SIZE" help:"Most bytes of stored responses. The least recently used go first. In memory, and where little memory is free, a 32nd of it."`
	SamplingDefaults string               `name:"sampling-defaults" enum:"model,neutral" default:"model" help:"Sampling parameters for the fields that a request leaves out: model (temperature, top_p, top_k, min_p and repetition_penalty that generation_config.json or the GGUF file recommends; if there are none, temperature 0.8, top_k 40, top_p 0.95, min_p 0.05) or neutral (temperature 1, all else off, as in OpenAI's API)."`
	FailedGrace      time.Duration        `name:"failed-grace" default:"5s" min:"0s" help:"How long to answer 503 after the device has failed. Then the process exits with status 3, so that a supervisor can restart it."`
	MaxTokenize      byteSize             `name:"max-tokenize" default:"1MiB" min:"1" help:"Largest request body of /tokenize and /detokenize, whose answers are longer than their requests."`
	MaxTimeout       time.Duration        `name:"max-timeout" default:"10m" min:"1ns" help:"Longest time for a request."`
	PingInterval     time.Duration        `name:"ping-interval" default:"10s" min:"1ms" max:"24h" help:"A stream that has nothing to send for this long while its request is computed sends its beginning or a ping, so that clients and proxies go on waiting."`
	MetricAliases    string               `name:"metric-aliases" default:"vllm" enum:"vllm,none" help:"Second names of metrics: vllm (vllm:num_requests_running and others, for vLLM's dashboards and endpoint pickers) or none."`
	Pprof            bool                 `help:"Serve /debug/pprof/ to admins."`
	OTLPEndpoint     string               `name:"otlp-endpoint" placeholder:"URL" help:"Send a trace of each request to this URL, by OTLP over HTTP."`
	OTLPSample       float64              `name:"otlp-sample" default:"1" min:"0" max:"1" help:"Share of requests that are traced, 0 to 1."`
	AccessLog        bool                 `name:"access-log" help:"Log a line for each request except health probes, at info level instead of debug."`

	settings serveSettings `kong:"-"`
	cached   *hub.Model    // model of the cache, used without --model
}

// Run is called by kong.
func (c *serveCmd) Run(ctx context.Context) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	if c.PrintConfig != "" {
		return c.settings.print(terminal.Out(), c.PrintConfig, c.settings.printTenants)
	}
	keys, certificates, log, err := c.serverFlags.open(&c.settings.settings)
	if err != nil {
		return err
	}
	defer log.Sync()
	l, err := listen(c.Addr) // before the rest, which takes long: fails early if the port is taken
	if err != nil {
		return err
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
		return withDoctor(err)
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
		Node: served.node, Model: served.names[0], Aliases: served.names[1:], Sampling: &served.sampling, TokenizerInfo: served.tokenizerInfo, Template: served.node.Template(), Created: served.created, About: served.about, Keys: keys, TLS: certificates, CallForm: toolcall.FormByName(c.ToolParser), Controls: c.ControlTokens, ToolsPrompt: c.ToolsPrompt, KeepNonces: c.StripNonces == "off", NoPrefixWatch: !c.PrefixWatch, UnknownFields: c.UnknownFields, AllowHosts: c.hosts(w.Card().URL), CORS: c.CORS,
		MaxBodyBytes: int(c.MaxBody), MaxBodiesBytes: int(c.MaxBodies), MaxTokenizeBytes: int(min(c.MaxTokenize, c.MaxBody)), MaxConns: c.MaxConns, MaxChoices: min(maxChoices, c.MaxRequests), MaxInputs: c.MaxInputs, ResponsesDir: c.ResponsesDir, ResponsesBytes: served.stored, MaxTimeout: c.MaxTimeout, PingInterval: c.PingInterval, WriteTimeout: c.WriteTimeout,
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
	greetWorker(terminal.Err(), w)
	c.greet(terminal.Err(), l.Addr(), served, srv.ToolCalls(), len(keys) > 0)
	return c.serve(srv, l, served.node, w, signals, log)
}

// maxChoices is the most outputs of a request, if --max-requests allows as many. A request
// for more could never be admitted, and would be told to retry forever.
const maxChoices = 128

// check reports faults of combinations of flags, and those that kong does not find.
func (c *serveCmd) check() error {
	var faults bounds.Faults
	faults.Add(checkAddr(c.Addr))
	faults.If(c.KVMemory > 0 && c.settings.isSet("kv-tokens"), "--kv-memory and --kv-tokens both set the size of the pool: give one of them")
	for _, f := range c.settings.flags {
		only := f.Tag.Get("backend")
		faults.If(only != "" && !slices.Contains(strings.Split(only, ","), c.Backend) && c.settings.isSet(f.Name), "--%s is for --backend %s", f.Name, strings.ReplaceAll(only, ",", " or "))
	}
	if at := c.OTLPEndpoint; at != "" { // checked here, as the exporter would only log a bad one
		u, err := url.Parse(at)
		faults.If(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User == nil && strings.Contains(at, "@"),
			"--otlp-endpoint is %.80q, want a URL like http://host:4318/v1/traces", eventurl.Redact(at))
	}
	faults.Add(c.serverFlags.check(), c.tierFlags.check(c.settings.isSet), c.fleetFlags.check(c.PageTokens))
	faults.Add(c.checkNames())
	return faults.Err()
}

// checkNames reports empty and duplicate names of the model.
func (c *serveCmd) checkNames() error {
	for i, name := range c.ModelName {
		if strings.TrimSpace(name) == "" || slices.Contains(c.ModelName[:i], name) {
			return fmt.Errorf("--model-name has %q among %q, want different names, separated by commas", name, c.ModelName)
		}
		if name == server.AnyName && i == 0 {
			return fmt.Errorf("--model-name begins with %s, which stands for any name: give the model's own name first, which answers and metrics use", name)
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

// greet prints the model, the address and an example request. calls describes the tool calls of the model.
func (c *serveCmd) greet(w io.Writer, at net.Addr, s *served, calls string, keys bool) {
	info := s.node.Info()
	fmt.Fprintf(w, "coppice: serving %s on %s (%s), %d KV tokens in pages of %d\n", strings.Join(s.names, ", "), info.Name, info.NumericsID, info.NumPages*info.PageTokens, info.PageTokens)
	if c.cached != nil {
		fmt.Fprintf(w, "coppice: no --model given: using %v from the Hugging Face cache; coppice models lists others\n", c.cached.Ref)
	}
	switch note := s.note(); {
	case note != "" && c.Model == "" && s.device == "" && c.cached == nil:
		fmt.Fprintf(w, "coppice: no --model given: %s; for a real one: coppice pull %s\n", note, exampleModel)
	case note != "":
		fmt.Fprintf(w, "coppice: %s\n", note)
	}
	fmt.Fprintf(w, "coppice: requests that say nothing else sample with %s (--sampling-defaults)\n", server.DescribeSampling(&s.sampling))
	example := greetText
	if t := s.node.Template(); t != nil {
		example = greetChat
		fmt.Fprintf(w, "coppice: tools are %s (--tools-prompt)\n", describeTools(t, c.ToolsPrompt))
		fmt.Fprintf(w, "coppice: tool calls are read as %s (--tool-parser)\n", calls)
	}
	path := ""
	if c.Page {
		path = "/"
	}
	c.serverFlags.greet(w, at, example, keys, path)
}

// describeTools says how the model learns of tools.
func describeTools(t *chat.Template, mode chat.ToolsPrompt) string {
	switch {
	case t.DropsTools() && mode == chat.AutoTools:
		return "described by the server in Hermes' form, as the model's chat template prints none"
	case t.DropsTools():
		return "refused, as the model's chat template prints none"
	case t.OneCall() && mode != chat.TemplateTools:
		return "printed by the model's chat template, and several calls of a message as several messages, as it takes one"
	}
	return "printed by the model's chat template"
}

// note explains why the text has no meaning or little; empty for a real model.
func (s *served) note() string {
	switch {
	case s.device != "":
		return "the device is simulated (" + s.device + "), the text means nothing"
	case s.generated:
		return randomWeights
	case s.speaks:
		return speaksOnly
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
