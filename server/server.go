package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/anthropic"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/internal/web"
	"github.com/coppice-llm/coppice/ollama"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/openai/responses"
	"github.com/coppice-llm/coppice/server/internal/prefixbreak"
	"github.com/coppice-llm/coppice/server/internal/stored"
	"github.com/coppice-llm/coppice/server/view"
	"github.com/coppice-llm/coppice/tokenizer/chat"
	"github.com/coppice-llm/coppice/tool"
)

// Server is an OpenAI-compatible server in front of one node. It is an http.Handler and can
// serve listeners itself. Its methods may be called from any goroutine.
type Server struct {
	cfg       Config
	log       *zap.Logger
	keys      *Keyring
	metrics   *metrics
	routes    *http.ServeMux
	paths     []Route
	fixed     fixed
	feed      *view.Feed // nil without a page
	http      http.Server
	policies  policies
	retries   retryTimes
	bodies    web.Bodies
	memory    *coppice.Memory // the node's
	responses *stored.Store
	breaks    *prefixbreak.Watch
	pins      keptPins
	renders   chan struct{} // holds an element for each conversation that is rendered
	buffers   sync.Pool     // of *[]byte

	failed atomic.Pointer[error] // set once the node has ended: why
	open   *web.OpenRequests
}

// fixed holds answers that never change, as JSON, and headers.
type fixed struct {
	card     []byte // nil without Config.Card
	document []byte
	sampling string // the sampling defaults, for a header
}

// policies are what requests are checked against.
type policies struct {
	sites    *web.Sites
	controls *chat.Controls      // nil without a tokenizer
	longest  int                 // most bytes of a prompt's text; 0: no bound
	tooLong  *conversation.Error // for a longer text
	calling  tool.Calling        // how the model calls tools
	reading  openai.Options

	anthropic anthropic.Options
	worker    uint64 // of this server in a fleet, part of the ids of responses; 0 outside of one
}

// Errors of requests that Shutdown or Close ends or refuses.
var (
	errDrained  = conversation.NewError(http.StatusServiceUnavailable, "shutting_down", "the server is shutting down and has stopped this request; retry")
	errDraining = conversation.NewError(http.StatusServiceUnavailable, "shutting_down", "the server is shutting down and takes no new requests")
)

// Serve answers on l until Shutdown or Close, then returns nil. It closes l.
func (s *Server) Serve(l net.Listener) error {
	l = web.LimitConns(l, web.ConnLimits{Conns: s.cfg.MaxConns, Spare: web.SpareConns}, &s.metrics.conns)
	return web.Serve(&s.http, l)
}

// Shutdown refuses new requests with status 503 and waits for the running ones. If ctx ends
// first, they end with an error that says so. Then it closes listeners and connections. It
// returns nil, or ctx's error if requests had to be ended. The node keeps running.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.open.Shutdown(ctx, &s.http, errDrained, s.closeFeed) // else page streams keep Shutdown waiting
	return errors.Join(err, s.http.Close())
}

// Close ends all requests and closes all connections at once.
func (s *Server) Close() error {
	s.open.Finish(errDrained)
	s.closeFeed()
	return s.http.Close()
}

// Draining reports whether Shutdown or Close has been called.
func (s *Server) Draining() bool { return s.open.Draining() }

// maxKeptBuffer is the largest buffer kept for reuse, in bytes.
const maxKeptBuffer = 64 << 10

// buffer returns an empty buffer. Give it back with release.
func (s *Server) buffer() *[]byte { return s.buffers.Get().(*[]byte) }

// release gives a buffer back, unless it has grown too large.
func (s *Server) release(b *[]byte) {
	if cap(*b) <= maxKeptBuffer {
		*b = (*b)[:0]
		s.buffers.Put(b)
	}
}

func (s *Server) closeFeed() {
	if s.feed != nil {
		s.feed.Close()
	}
}

// Route is a path and its methods.
type Route struct {
	Path    string // as in the OpenAPI document: "/v1/models/{id}"
	Methods []string
}

// New makes a server. With Config.Page it starts a goroutine, which ends with Shutdown or Close.
// New reports all faults of cfg at once, and fails if its metrics are already in cfg.Registry.
func New(cfg Config) (*Server, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Log, open: web.NewOpenRequests(0), bodies: web.Bodies{Most: cfg.MaxBodiesBytes}, memory: cfg.Node.Memory(), breaks: newWatch(cfg.Node.Memory()), renders: make(chan struct{}, runtime.GOMAXPROCS(0))}
	if cfg.Card != nil {
		published := *cfg.Card
		if cfg.Bundle != nil {
			published.Tokenizer = cfg.Bundle.Digest
		}
		if cfg.Controls != chat.Allow {
			published.ControlTokens = cfg.Controls.String()
		}
		published.ToolsPrompt = cfg.ToolsPrompt.String()
		s.fixed.card = published.Append(nil)
		s.policies.worker = card.IDOf(cfg.Card.Name)
	}
	var err error
	if s.responses, err = stored.Open(stored.Config{Dir: cfg.ResponsesDir, MaxBytes: cfg.ResponsesBytes}); err != nil {
		return nil, err
	}
	if s.policies.sites, err = web.NewSites(cfg.sites()); err != nil {
		return nil, fmt.Errorf("server: AllowHosts or CORS: %w", err)
	}
	if tok := cfg.Node.Tokenizer(); tok != nil {
		s.policies.controls = chat.NewControls(tok.ControlTokens())
	}
	s.pins.most = cfg.Node.Limits().PinnedTokens
	s.policies.calling = tool.CallingOf(cfg.Template, cfg.Node.Tokenizer(), cfg.CallForm, cfg.ToolsPrompt)
	most, tooLong := cfg.Node.PromptBytes()
	s.policies.longest, s.policies.tooLong = most, errorOf(tooLong)
	s.policies.reading = openai.Options{UnknownFields: cfg.UnknownFields, Sampling: sampling(cfg.Sampling), CallForm: s.policies.calling.Form.Name}
	s.policies.anthropic = anthropic.Options{
		IgnoreUnknown: cfg.UnknownFields == openai.IgnoreUnknown, KeepNonces: cfg.KeepNonces, Sampling: s.policies.reading.Sampling, CallForm: s.policies.reading.CallForm,
	}
	s.fixed.sampling = DescribeSampling(cfg.Sampling)
	s.buffers.New = func() any { b := make([]byte, 0, 1024); return &b }
	if err := newMetrics(s); err != nil {
		return nil, err
	}
	s.fixed.document = openai.Facts{
		Version: cfg.Version, Models: append([]string{cfg.Model}, cfg.Aliases...), Keyed: len(cfg.Keys) > 0, Choices: s.maxChoices(),
		Vocab: cfg.Node.Info().Vocab, BodyBytes: cfg.MaxBodyBytes, Sampling: documented(cfg.Sampling),
		Wires: [][]byte{anthropic.Document, ollama.Document, responses.Document},
	}.Document()
	if s.keys, err = NewKeyring(cfg.Keys); err != nil {
		return nil, err
	}
	s.cfg.Keys = nil // keep no secrets
	if cfg.Page {
		s.feed = newFeed(s)
	}
	s.mount()
	s.http = http.Server{
		Handler: s, TLSConfig: cfg.TLS, ConnContext: web.ConnContext,
		ReadHeaderTimeout: cfg.ReadHeaderTimeout, IdleTimeout: cfg.IdleTimeout, MaxHeaderBytes: cfg.MaxHeaderBytes,
		ErrorLog: web.Log(s.log),
	}
	return s, nil
}

// Routes returns the paths of the API, sorted. The paths of the live page are left out.
func (s *Server) Routes() []Route { return slices.Clone(s.paths) }

// newFeed returns the feed of the live page of s.
func newFeed(s *Server) *view.Feed {
	return view.NewFeed(view.Config{
		Source: s.cfg.Node, Model: s.cfg.Model, Version: s.cfg.Version, Note: s.cfg.PageNote, Text: view.Texts(s.cfg.Node.Tokenizer()),
		Access: func(r *http.Request) (view.Access, string) {
			tenant, admin, err := s.keys.Find(r)
			switch {
			case err != nil:
				return view.Denied, ""
			case admin:
				return view.Full, tenant
			default:
				return view.Redacted, tenant
			}
		},
	})
}

// finished reports a finished request for tokens to the live page. total is the time from the
// request's arrival to the end of its answer.
func (c *call) finished(total time.Duration) {
	if c.s.feed == nil {
		return
	}
	c.s.feed.Finish(view.Finished{
		Tenant: c.caller.tenant, Reason: c.bill.reason.String(), PrefixBreak: c.followed.said(),
		PromptTokens: c.bill.promptTokens, CachedTokens: c.bill.cachedTokens, OutputTokens: c.bill.outputTokens,
		TTFTMillis: millis(c.bill.firstToken), TotalMillis: millis(total),
	})
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// ToolCalls says in which form the model's tool calls are read, and why, for people: "hermes, as the
// chat template writes them". It is empty without a chat template.
func (s *Server) ToolCalls() string {
	c := &s.policies.calling
	if c.Why == "" {
		return ""
	}
	return c.Form.Name + ", " + c.Why
}
