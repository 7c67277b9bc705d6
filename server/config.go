package server

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/bundle"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/grammar/toolcall"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/web"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/server/internal/answer"
	"github.com/coppice-llm/coppice/server/internal/slogcore"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Config configures a Server: its model, its callers and its limits. Node and Model are
// required.
type Config struct {
	// Node answers the requests. The caller keeps it, and closes it after Shutdown.
	Node *coppice.Node
	// Model is the name by which requests ask for the model; they may leave it out.
	Model string
	// Aliases are further names that requests may give, or AnyName. Answers and metrics use Model.
	Aliases []string
	// Owner is owned_by in /v1/models. Default "coppice".
	Owner string `default:"coppice"`
	// Created is the model's creation time in /v1/models. Default: the time of New.
	Created time.Time
	// About describes the model's files, for /api/tags and /api/show. Default: nothing is known.
	About About
	// Fingerprint is system_fingerprint in all answers. Default: a hash of the backend's ModelID
	// and NumericsID, which together decide the output of a seeded request.
	Fingerprint string
	// Template turns conversations into prompts. Without one, chat requests are refused.
	Template *chat.Template

	// CallForm is the form in which the model writes tool calls. Default: that of the calls in
	// Template, or if it has none that is known, toolcall.Hermes.
	CallForm *toolcall.Form

	// Controls decides how control tokens in messages written by callers are treated. Default:
	// they count as control tokens, as in other servers.
	Controls chat.ControlMode

	// ToolsPrompt decides what happens to tools, calls and results that the template does not print.
	// Default: the server writes them in front of the template.
	ToolsPrompt chat.ToolsPrompt

	// KeepNonces leaves blocks in system prompts that differ in each request and tell the model nothing. Default: they
	// are left out of the prompt, so that it has a prefix in common with the ones before; see anthropic.Request.Stripped.
	KeepNonces bool

	// UnknownFields decides how unknown request fields are treated. Default: refused, except
	// fields known to change nothing.
	UnknownFields UnknownFields
	// Sampling holds the defaults for requests that leave sampling parameters out. Default:
	// temperature 1 and everything else off, as in OpenAI's API.
	Sampling *engine.SamplingParams

	// Keys are the API keys. Without keys every caller is admitted as one unnamed tenant with
	// admin rights.
	Keys []Key
	// AllowHosts are host names that a server without Keys answers to, besides IP addresses and
	// localhost: "llm.example.com", or "*.example.com". Other names get status 403, against DNS
	// rebinding: a web page could otherwise reach the server under its own name.
	AllowHosts []string
	// CORS lists the origins of web pages that may call from a browser, such as
	// "https://app.example.com", or "*" for all. Default: only the server's own page.
	CORS []string
	// TLS makes Serve speak TLS. HTTP/2 is offered if NextProtos has "h2". Default: plain HTTP.
	TLS *tls.Config

	// MaxBodyBytes bounds one request's body. Default 8 MiB.
	MaxBodyBytes int `default:"8<<20" min:"1" max:"1<<40"`
	// MaxTokenizeBytes bounds the bodies of /tokenize and /detokenize, whose answers are longer
	// than their bodies. Default 1 MiB, or MaxBodyBytes if that is less.
	MaxTokenizeBytes int `min:"1" max:"1<<40"`
	// MaxBodiesBytes bounds the bodies of all open requests together; beyond it, requests get
	// status 503. Default 256 MiB, or MaxBodyBytes if that is more.
	MaxBodiesBytes int `max:"1<<40"`
	// BusyWait is how long a request waits for room in the node's Memory for its body, or for its turn
	// to render a conversation, before it gets status 503. Default 10 s.
	BusyWait time.Duration `default:"10s" above:"0s"`
	// ResponsesDir keeps the responses of /v1/responses that are stored in files, in plain text. Default: in memory.
	ResponsesDir string
	// ResponsesBytes bounds the stored responses; the least recently used go first. Default 64 MiB.
	ResponsesBytes int `default:"64<<20" min:"1" max:"1<<40"`
	// MaxHeaderBytes bounds a request's header. Default 64 KiB.
	MaxHeaderBytes int `default:"64<<10" min:"1024" max:"1<<40"`
	// MaxConns bounds the connections. A few more are accepted, on which only /health and /ready
	// answer and all else gets status 503. Beyond these, connections wait to be accepted.
	// Default 8192.
	MaxConns int `default:"8192" min:"1" max:"1<<40"`
	// MaxChoices bounds the outputs of one request: prompts times n. Default 128. The node's
	// scheduler.Config.MaxSamples bounds n too.
	MaxChoices int `default:"128" min:"1" max:"1<<40"`
	// MaxInputs bounds the texts of one request for embeddings. Default 2048.
	MaxInputs int `default:"2048" min:"1" max:"2048"`
	// MaxTimeout is the time limit of requests that set none or a longer one. Default 10
	// minutes.
	MaxTimeout time.Duration `default:"10m" above:"0s"`
	// ReadHeaderTimeout bounds the time to read a request's header, ReadTimeout its body.
	// Defaults 10 s and 30 s.
	ReadHeaderTimeout time.Duration `default:"10s" above:"0s"`
	ReadTimeout       time.Duration `default:"30s" above:"0s"`
	// WriteTimeout aborts a request whose client has read nothing of the pending answer for this
	// long. The deadline is renewed lazily, so it may be as short as half of this. Default 30 s.
	WriteTimeout time.Duration `default:"30s" above:"0s"`
	// PingInterval is how long a streamed answer may send nothing while its request is computed. Then it sends its beginning
	// or a ping, in the form of its API, so that clients and proxies go on waiting. From then on errors come in the stream. A request
	// in the queue waits three times as long. Default 10 s.
	PingInterval time.Duration `default:"10s" above:"0s"`
	// IdleTimeout bounds the wait of a connection for its next request. Default 2 min.
	IdleTimeout time.Duration `default:"2m" above:"0s"`
	// TreeNodes bounds the nodes in one answer of /v1/cache/tree. Default 10000.
	TreeNodes int `default:"10000" min:"1" max:"1<<40"`

	// Card describes this server to a fleet, as the answer of /v1/worker. Only New reads it.
	// nil: /v1/worker is a 404.
	Card *card.Card
	// Bundle holds the model's tokenizer and chat template for routers, which fetch it at
	// card.TokenizerPath. nil: a 404.
	Bundle *bundle.Bundle
	// TokenizerInfo is the answer of /tokenizer_info, made by the function of that name. nil: a
	// 404.
	TokenizerInfo []byte
	// Events reads the metrics of the publisher of the node's cache events. Any goroutine may
	// call it. Default: no such metrics.
	Events func() events.PublisherMetrics

	// NoPrefixWatch turns off the comparison of each turn of a conversation with the one before. It tells clients that
	// change what their conversation begins with, and takes up to 32 MiB, or a sixteenth of the node's Memory.
	NoPrefixWatch bool

	// Page serves the live page at / and its data at /v1/view. Admins see everything; others see
	// neither text of prompts nor names of tenants.
	Page bool
	// Version of the server, for /version, the metric coppice_build_info and the page. Default
	// "devel".
	Version string `default:"devel"`
	// PageNote is a short sentence shown next to the model on the page, such as that its weights
	// are random. Default: none.
	PageNote string
	// Pprof serves /debug/pprof/, to admins.
	Pprof bool
	// Registry receives the metrics. Default: a new one, with the collectors of Go and of the
	// process.
	Registry *prometheus.Registry
	// TenantLabels bounds the tenants with their own metric label, in the order of Keys;
	// the rest share the label "other". Default 50.
	TenantLabels int `default:"50" min:"1" max:"1<<40"`
	// MetricAliases adds metrics under the names of another server, besides coppice_NAME:
	// VLLMNames adds vllm:NAME for those that vLLM has too, NoNames adds none. Default:
	// VLLMNames.
	MetricAliases string `default:"vllm"`
	// Tracer makes a span of each request. Default: none, at no cost.
	Tracer trace.Tracer
	// Log receives failures, and at debug level a line for each request. It never receives text
	// of a prompt or an output. Default: LogHandler.
	Log *zap.Logger
	// LogHandler is used where Log is nil. Default: nothing is logged.
	LogHandler slog.Handler
	// AccessLog logs requests at info level. Probes (/health, /ready) are not logged.
	AccessLog bool
}

// AnyName among Config.Aliases lets requests give any name, for clients that ask for models by names of their own.
const AnyName = "*"

// Values of Config.MetricAliases.
const (
	VLLMNames = "vllm"
	NoNames   = "none"
)

// UnknownFields decides how unknown fields are treated; the zero value refuses them.
type UnknownFields = openai.UnknownFields

// TokenizerInfo makes the answer of /tokenizer_info from the contents of a model's
// tokenizer_config.json (nil: none) and of its chat template file ("": none). It fails if config
// is not a JSON object.
func TokenizerInfo(config []byte, template string) ([]byte, error) {
	return answer.TokenizerInfo(config, template)
}

// WithDefaults returns c with every zero field set to its default.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	c.MaxTokenizeBytes = cmp.Or(c.MaxTokenizeBytes, min(1<<20, c.MaxBodyBytes))
	c.MaxBodiesBytes = cmp.Or(c.MaxBodiesBytes, max(256<<20, c.MaxBodyBytes))
	if c.Fingerprint == "" && c.Node != nil {
		info := c.Node.Info()
		sum := sha256.Sum256([]byte(info.ModelID + "\x00" + info.NumericsID))
		c.Fingerprint = "fp_" + hex.EncodeToString(sum[:5])
	}
	if c.Created.IsZero() {
		c.Created = time.Now()
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
		c.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	if c.Log == nil && c.LogHandler != nil {
		c.Log = slogcore.New(c.LogHandler)
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// Validate reports all faults at once, by field and value. Call it on the result of
// WithDefaults.
func (c Config) Validate() error {
	var errs []error
	vocab := 0
	if c.Node == nil {
		errs = append(errs, errors.New("server: Node is nil, give an open one"))
	} else {
		vocab = c.Node.Info().Vocab
	}
	if c.Model == "" {
		errs = append(errs, errors.New("server: Model is empty, give the name that requests ask for"))
	}
	seen := map[string]bool{c.Model: true}
	for i, name := range c.Aliases {
		if name == "" || seen[name] {
			errs = append(errs, fmt.Errorf("server: Aliases[%d] is %q, want a name that is neither empty nor a duplicate", i, name))
		}
		seen[name] = true
	}
	if c.MetricAliases != VLLMNames && c.MetricAliases != NoNames {
		errs = append(errs, fmt.Errorf("server: MetricAliases is %q, want %q or %q", c.MetricAliases, VLLMNames, NoNames))
	}
	if c.Sampling != nil {
		if err := c.Sampling.Validate(vocab); err != nil {
			errs = append(errs, fmt.Errorf("server: Sampling: %w", err))
		}
	}
	if c.Card != nil {
		if err := c.Card.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("server: Card: %w", err))
		}
	}
	if c.MaxBodiesBytes < c.MaxBodyBytes {
		errs = append(errs, fmt.Errorf("server: MaxBodiesBytes is %d, want at least MaxBodyBytes, %d", c.MaxBodiesBytes, c.MaxBodyBytes))
	}
	return errors.Join(append(errs, bounds.Check("server", c), validateKeys(c.Keys))...)
}

// sites returns the part of c that decides which hosts and web pages are admitted.
func (c *Config) sites() web.SitesConfig {
	return web.SitesConfig{AnyHost: len(c.Keys) > 0, AllowHosts: c.AllowHosts, Origins: c.CORS}
}
