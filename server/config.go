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
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/server/answer"
	"github.com/coppice-llm/coppice/internal/sites"
	"github.com/coppice-llm/coppice/internal/slogcore"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/tokenizer/bundle"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Config says what is served, to whom and within which limits. Node and Model are
// required.
type Config struct {
	// Node answers. It stays the caller's, to be closed after Shutdown.
	Node *coppice.Node
	// Model is the name under which it is asked for; requests may leave it out.
	Model string
	// Aliases are other names that requests may give. Answers and metrics say Model.
	Aliases []string
	// Owner is owned_by of /v1/models. Default "coppice".
	Owner string `default:"coppice"`
	// Created is when the model came to be, for /v1/models. Default the time of New.
	Created time.Time
	// Fingerprint is system_fingerprint of all answers. Default a hash of
	// the backend's ModelID and NumericsID, which decide what a seed gives.
	Fingerprint string
	// Template turns conversations into prompts. Without one they are refused.
	Template *chat.Template

	// Controls is what becomes of control tokens that callers write into messages. Default:
	// they are taken as such, as by other servers.
	Controls chat.ControlMode

	// UnknownFields of requests are refused by default, but for those that are known to
	// change nothing.
	UnknownFields UnknownFields
	// Sampling is what requests get that don't say how to sample. Default: temperature 1, and
	// all else off, as OpenAI has it.
	Sampling *engine.SamplingParams

	// Keys are who may ask. None: anybody, all as one tenant without a name, who may
	// do everything.
	Keys []Key
	// AllowHosts are names that a server without Keys answers to, beside IP addresses and
	// localhost: "llm.example.com", or "*.example.com". Others get status 403: a web page
	// could reach the server by such a name of its own (DNS rebinding).
	AllowHosts []string
	// CORS are the origins of web pages that may call from a browser, such as
	// "https://app.example.com", or "*" for all. Default: only the server's own page may.
	CORS []string
	// TLS, if any, is what Serve speaks. HTTP/2 is offered if its NextProtos has "h2".
	TLS *tls.Config

	// MaxBodyBytes bounds one request's body. Default 8 MiB.
	MaxBodyBytes int `default:"8<<20" min:"1" max:"1<<40"`
	// MaxTokenizeBytes bounds the bodies of /tokenize and /detokenize, whose answers are
	// longer. Default 1 MiB, or MaxBodyBytes if that is less.
	MaxTokenizeBytes int `min:"1" max:"1<<40"`
	// MaxBodiesBytes bounds the bodies of all open requests together; more are told to
	// come later. Default 256 MiB.
	MaxBodiesBytes int `max:"1<<40"`
	// MaxHeaderBytes bounds a request's header. Default 64 KiB.
	MaxHeaderBytes int `default:"64<<10" min:"1024" max:"1<<40"`
	// MaxConns bounds the connections. Over a few more /health and /ready are answered, and
	// all else gets status 503; beyond these, connections wait to be accepted. Default 8192.
	MaxConns int `default:"8192" min:"1" max:"1<<40"`
	// MaxChoices bounds the outputs of one request: prompts times n. Default 128.
	MaxChoices int `default:"128" min:"1" max:"1<<40"`
	// MaxTimeout ends every request that sets no shorter limit. Default 10 minutes.
	MaxTimeout time.Duration `default:"10m" above:"0s"`
	// ReadHeaderTimeout is how long a request's header may take, ReadTimeout its body.
	// Defaults 10 s and 30 s.
	ReadHeaderTimeout time.Duration `default:"10s" above:"0s"`
	ReadTimeout       time.Duration `default:"30s" above:"0s"`
	// WriteTimeout is how long a client may take nothing of what there is for it,
	// half as long at least; its request is aborted then. Default 30 s.
	WriteTimeout time.Duration `default:"30s" above:"0s"`
	// IdleTimeout is how long a connection may wait for its next request. Default 2 min.
	IdleTimeout time.Duration `default:"2m" above:"0s"`
	// TreeNodes bounds what one answer of /v1/cache/tree lists. Default 10000.
	TreeNodes int `default:"10000" min:"1" max:"1<<40"`

	// Card is what this server is to a fleet, the answer of /v1/worker; read by New alone.
	// Without one that is a 404.
	Card *card.Card
	// Bundle is the model's tokenizer and chat template for routers, at the path that the
	// card's Tokenizer speaks of; nil: they are not handed out.
	Bundle *bundle.Bundle
	// TokenizerInfo is the answer of /tokenizer_info, as the function of that name makes it;
	// nil: that is a 404.
	TokenizerInfo []byte
	// Events reads the figures of who publishes the node's cache events, for the metrics;
	// it may be called by any goroutine. Default: there are none.
	Events func() events.PublisherMetrics

	// Page serves the live page at / and what feeds it, at /v1/view: to admins all of it,
	// to others neither text of prompts nor names of tenants.
	Page bool
	// Version of the server, for /version, the metric coppice_build_info and the page. Default "devel".
	Version string `default:"devel"`
	// PageNote is a short sentence that the page shows beside the model, such as that its
	// weights are random. Default: none.
	PageNote string
	// Pprof serves /debug/pprof/, to admins.
	Pprof bool
	// Registry takes the metrics. Default one of its own, with those of Go and of the
	// process.
	Registry *prometheus.Registry
	// TenantLabels bounds the tenants that metrics tell apart, in the order of Keys; the
	// rest are "other". Default 50.
	TenantLabels int `default:"50" min:"1" max:"1<<40"`
	// MetricAliases adds metrics by the names of another server, beside those of coppice_: VLLMNames for vllm:NAME of what
	// both have, or NoNames. Default: VLLMNames.
	MetricAliases string `default:"vllm"`
	// Tracer makes a span of each request. Default: none, at no cost.
	Tracer trace.Tracer
	// Log receives failures, and at debug level a line for each request. No text of a prompt
	// or an output is in it. Default: LogHandler.
	Log *zap.Logger
	// LogHandler receives the same where Log is nil. Default: nothing is logged.
	LogHandler slog.Handler
	// AccessLog has the lines of requests at info level. Probes (/health, /ready) have none.
	AccessLog bool
}

// The choices of Config.MetricAliases.
const (
	VLLMNames = "vllm"
	NoNames   = "none"
)

// UnknownFields says what becomes of fields that are not known; the zero value refuses them.
type UnknownFields = openai.UnknownFields

// TokenizerInfo makes the answer of /tokenizer_info from what a model's
// tokenizer_config.json holds, nil if there is none, and from a chat template that is a file
// of its own, "" if there is none.
func TokenizerInfo(config []byte, template string) ([]byte, error) {
	return answer.TokenizerInfo(config, template)
}

// WithDefaults is c with every zero field filled in.
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
	if c.Log = slogcore.Choose(c.Log, c.LogHandler); c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// Validate reports all faults at once, by field and value. It expects defaults to be
// filled in.
func (c Config) Validate() error {
	var errs []error
	if c.Node == nil {
		errs = append(errs, errors.New("server: Node is nil, give an open one"))
	}
	if c.Model == "" {
		errs = append(errs, errors.New("server: Model is empty, give the name that requests ask for"))
	}
	seen := map[string]bool{c.Model: true}
	for i, name := range c.Aliases {
		if name == "" || seen[name] {
			errs = append(errs, fmt.Errorf("server: Aliases[%d] is %q, want a name that is not there yet", i, name))
		}
		seen[name] = true
	}
	if c.MetricAliases != VLLMNames && c.MetricAliases != NoNames {
		errs = append(errs, fmt.Errorf("server: MetricAliases is %q, want %q or %q", c.MetricAliases, VLLMNames, NoNames))
	}
	if c.Sampling != nil {
		if err := c.Sampling.Validate(0); err != nil {
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

// sites is which hosts and pages c lets in.
func (c *Config) sites() sites.Config {
	return sites.Config{AnyHost: len(c.Keys) > 0, AllowHosts: c.AllowHosts, Origins: c.CORS}
}
