package server

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"

	"github.com/coppice-llm/coppice/internal/web"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/server/internal/answer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// New makes a server. With Config.Page it starts a goroutine, which ends with Shutdown or Close.
// New reports all faults of cfg at once, and fails if its metrics are already in cfg.Registry.
func New(cfg Config) (*Server, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Log, door: web.NewDoor(0), bodies: web.Bodies{Most: cfg.MaxBodiesBytes}, memory: cfg.Node.Memory(), renders: make(chan struct{}, runtime.GOMAXPROCS(0))}
	if cfg.Card != nil {
		published := *cfg.Card
		if cfg.Bundle != nil {
			published.Tokenizer = cfg.Bundle.Digest
		}
		if cfg.Controls != chat.Allow {
			published.ControlTokens = cfg.Controls.String()
		}
		s.fixed.card = published.Append(nil)
	}
	var err error
	if s.screen.sites, err = web.NewSites(cfg.sites()); err != nil {
		return nil, fmt.Errorf("server: AllowHosts or CORS: %w", err)
	}
	if tok := cfg.Node.Tokenizer(); tok != nil {
		s.screen.controls, s.screen.thinks = chat.NewControls(tok.ControlTokens()), answer.Reasons(tok)
	}
	most, tooLong := cfg.Node.PromptBytes()
	s.screen.longest, s.screen.tooLong = most, errorOf(tooLong)
	s.screen.reading = openai.Options{UnknownFields: cfg.UnknownFields, Sampling: sampling(cfg.Sampling)}
	s.buffers.New = func() any { b := make([]byte, 0, 1024); return &b }
	if err := newMetrics(s); err != nil {
		return nil, err
	}
	s.fixed.document = openai.Facts{
		Version: cfg.Version, Models: append([]string{cfg.Model}, cfg.Aliases...), Keyed: len(cfg.Keys) > 0, Choices: s.maxChoices(),
		Vocab: cfg.Node.Info().Vocab, BodyBytes: cfg.MaxBodyBytes, Sampling: documented(cfg.Sampling),
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
