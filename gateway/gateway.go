package gateway

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway/internal/dispatch"
	"github.com/coppice-llm/coppice/gateway/internal/global"
	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/gateway/internal/prompt"
	"github.com/coppice-llm/coppice/gateway/internal/recording"
	"github.com/coppice-llm/coppice/internal/web"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Gateway routes requests to the workers of a fleet. It is an http.Handler and can serve
// listeners itself. Its methods may be called from any goroutine.
type Gateway struct {
	cfg       Config
	log       *zap.Logger
	sites     *web.Sites
	members   *members.Fleet
	dispatch  *dispatch.Dispatcher
	peers     dispatch.Peers      // nil if this is the only gateway
	recorder  *recording.Recorder // nil if nothing is recorded
	reading   atomic.Pointer[reading]
	attempts  attempts
	transport *http.Transport
	proxy     *httputil.ReverseProxy
	routes    *http.ServeMux
	http      http.Server
	metrics   *metrics
	requests  sync.Pool // of *requestBuffer
	buffers   sync.Pool // of *[]byte
	via       string    // this gateway's entry in the header Via; a request that has it already is in a loop
	bodies    web.Bodies
	open      *web.OpenRequests
	clock     sync.WaitGroup // the goroutine of tick
}

// reading converts prompts into tokens with the tokenizer in use.
type reading struct {
	*prompt.Reader
	exact bool // there is a tokenizer; else tokens are made of the prompts' bytes
}

// New makes a gateway and starts to probe its workers. It reports all faults of cfg at once.
func New(cfg Config) (*Gateway, error) {
	keyed, tenants := cfg.Tenant != nil, cfg.Prompt.Namespace != nil || cfg.Prompt.ForeignNamespace != nil
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Replicas != nil {
		nameReplica(&cfg.Router)
	}
	g := &Gateway{cfg: cfg, log: cfg.Log, via: fmt.Sprintf("1.1 coppice-%016x", rand.Uint64()), open: web.NewOpenRequests(cfg.MaxOpen),
		bodies: web.Bodies{Most: cfg.MaxBodiesBytes}}
	g.attempts = attempts{at: map[*members.Member]map[*attempt]struct{}{}, patience: lostPatience}
	g.requests.New = func() any { return &requestBuffer{} }
	g.buffers.New = func() any { b := make([]byte, 32<<10); return &b }
	dialer := net.Dialer{Timeout: cfg.DialTimeout, KeepAlive: 15 * time.Second}
	g.transport = &http.Transport{
		DialContext: dialer.DialContext, MaxIdleConnsPerHost: 4096, IdleConnTimeout: 90 * time.Second,
		DisableCompression: true, TLSHandshakeTimeout: 5 * time.Second, WriteBufferSize: 64 << 10, ReadBufferSize: 16 << 10,
		MaxResponseHeaderBytes: 64 << 10,
	}
	var err error
	if g.sites, err = web.NewSites(web.SitesConfig{AnyHost: keyed, AllowHosts: cfg.AllowHosts, Origins: cfg.CORS}); err != nil {
		return nil, fmt.Errorf("gateway: AllowHosts or CORS: %w", err)
	}
	if g.dispatch, err = dispatch.New(cfg.dispatch()); err != nil {
		return nil, err
	}
	given := members.TokenizerSet{Tokenizer: cfg.Prompt.Tokenizer, Template: cfg.Prompt.Template, Digest: cfg.Tokenizer}
	if err := g.read(&given); err != nil {
		return nil, err
	}
	if g.metrics, err = newMetrics(g); err != nil {
		return nil, err
	}
	g.mount()
	// Parts that can fail and must then be closed come last.
	if g.members, err = members.New(members.Config{
		MaxWorkers: cfg.Router.MaxWorkers, BlockTokens: g.dispatch.BlockTokens(), Sink: g.dispatch.Sink(), Router: g.dispatch,
		StillLost:  func(m *members.Member, since time.Time) { g.attempts.cancelSilent(m, since, time.Now()) },
		NameUnused: g.metrics.forget, Read: g.read,
		Admit:     func(url string, c *card.Card) error { return g.dispatch.Pools().Admit(url, c) },
		Tokenizer: given, NATS: cfg.NATS, Bind: cfg.Bind, Consolidate: cfg.Consolidate, Approximate: cfg.Approximate, Keyed: keyed, Tenants: tenants,
		Silence: cfg.EventSilence, Outlast: max(0, cfg.EventOutlast), Quiet: cfg.quiet,
		Transport: g.transport, Key: cfg.WorkerKey, ProbeEvery: cfg.ProbeEvery, ProbeTimeout: cfg.ProbeTimeout, FailAfter: cfg.FailAfter, Log: cfg.Log,
	}); err != nil {
		return nil, err
	}
	if err := errors.Join(g.openRecording(), g.start()); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// start starts everything that runs until Close.
func (g *Gateway) start() error {
	if err := g.SetWorkers(g.cfg.Workers); err != nil {
		return err
	}
	if err := g.members.Start(); err != nil {
		return err
	}
	if g.cfg.Replicas != nil {
		peers, err := g.cfg.Replicas(g.dispatch, g.log, g.members.Notify("replicas"))
		if err != nil {
			return err
		}
		g.peers = peers
		if p, ok := peers.(interface{ Collector() prometheus.Collector }); ok {
			if err := g.cfg.Registry.Register(p.Collector()); err != nil {
				return err
			}
		}
	}
	g.clock.Go(g.tick)
	return nil
}

// tick does the periodic work, once a second, until the gateway is closed.
func (g *Gateway) tick() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-g.open.Over().Done():
			return
		case now := <-t.C:
			g.dispatch.Tick()
			g.cancelUnbegun(g.dispatch.Loads())
			g.redeal(g.members.Summary(), now)
		}
	}
}

// redeal divides the workers into buckets again if that is due by the summary s. It does so with a
// new summary, in order with other changes of the fleet: s may be outdated by then.
func (g *Gateway) redeal(s *members.Summary, now time.Time) {
	if g.dispatch.DealDue(s, now) {
		g.members.Enroll()
	}
}

// cancelUnbegun cancels the requests at late workers that these have not begun, if a healthy
// worker is on time.
func (g *Gateway) cancelUnbegun(loads []router.Load) {
	prompt := func(l router.Load) bool { return l.Health == router.Healthy && !l.Stalled }
	if !slices.ContainsFunc(loads, prompt) {
		return
	}
	fleet := g.members.Summary()
	for _, l := range loads {
		if m := fleet.ByID[l.Worker.Worker]; l.Stalled && m != nil {
			g.attempts.cancelUnbegun(m)
		}
	}
}

// read switches to the tokenizer and template of set for reading prompts.
func (g *Gateway) read(set *members.TokenizerSet) error {
	cfg := g.cfg.Prompt
	cfg.Tokenizer, cfg.Template = set.Tokenizer, set.Template
	r, err := prompt.New(cfg)
	if err == nil {
		g.reading.Store(&reading{r, set.Exact()})
	}
	return err
}

// SetWorkers replaces the list of configured workers: workers of the earlier list that are not
// in all leave. Workers that registered themselves stay in any case. An invalid list is an error
// and changes nothing.
func (g *Gateway) SetWorkers(all []members.WorkerConfig) error { return g.members.SetWorkers(all) }

// SetPools replaces Config.Pools from the next request on; requests under way keep the old
// pools. Workers of a pool that no longer exists are refused, workers of a new pool admitted.
// The gateway takes ownership of c. It is an error, and changes nothing, if c is invalid or the
// gateway was made without Pools.
func (g *Gateway) SetPools(c *global.Config) error {
	if err := g.dispatch.SetPools(c); err != nil {
		return err
	}
	g.metrics.begin(g.dispatch.Pools())
	g.members.Enroll()
	for _, m := range g.members.All() {
		m.Nudge()
	}
	return nil
}

// noWorkers returns the error for a fleet in which no worker can be asked. workers is the number of
// known workers; if it is 0, the error explains how to add some.
func (g *Gateway) noWorkers(workers int) *conversation.Error {
	if workers > 0 {
		return errNoWorkers
	}
	if why := g.members.Troubles(); g.members.Registers() && len(why) > 0 {
		return conversation.NewError(http.StatusServiceUnavailable, "no_workers", "the gateway has no workers, and none can register: %s", why[0])
	}
	return errEmpty
}

// readAs returns how to read prompts for the current workers. A prompt need not be read beyond
// the longest prompt that any of them takes. Control tokens in messages, and tools that the template does not
// print, are treated as most workers treat them.
func readAs(s *members.Summary) prompt.As {
	as := prompt.As{MaxTokens: s.Longest, ToolsPrompt: chat.TemplateTools, Foreign: s.Foreign > 0 && s.Foreign == len(s.ByID)}
	switch {
	case 2*s.AutoTools > len(s.ByID):
		as.ToolsPrompt = chat.AutoTools
	case 2*s.NoTools > len(s.ByID):
		as.ToolsPrompt = chat.NoToolsPrompt
	}
	if 2*s.Plain > len(s.ByID) {
		as.Controls = chat.Text
	}
	return as
}

// Draining reports whether Shutdown or Close has been called.
func (g *Gateway) Draining() bool { return g.open.Draining() }

// enter admits a request, or returns the reason to refuse it: the gateway is shutting down, too
// many requests are open, or the request has passed this gateway before. An admitted request
// must call g.open.Leave.
func (g *Gateway) enter(r *http.Request) error {
	// A proxy in between may have joined several Via headers into one line.
	if slices.ContainsFunc(r.Header.Values("Via"), func(line string) bool { return strings.Contains(line, g.via) }) {
		return errLoop
	}
	switch g.open.Enter() {
	case web.ErrDraining:
		return errDraining
	case web.ErrFull:
		return errTooMany
	}
	return nil
}

// Serve answers on l until Shutdown or Close, then returns nil. It closes l.
func (g *Gateway) Serve(l net.Listener) error { return web.Serve(&g.http, l) }

// Shutdown refuses new requests with status 503 and waits for the open ones. When ctx ends, it
// ends the open requests. Then it closes everything. It returns ctx's error if requests had to
// be ended.
func (g *Gateway) Shutdown(ctx context.Context) error {
	return errors.Join(g.open.Shutdown(ctx, &g.http, errDrained, nil), g.Close())
}

// Close ends all requests and connections at once. When it returns, only answers that clients do
// not read may still be running. It may be called again.
func (g *Gateway) Close() error {
	g.open.Finish(errDrained)
	err := g.http.Close()
	if g.peers != nil {
		err = errors.Join(err, g.peers.Close())
	}
	err = errors.Join(err, g.members.Close())
	g.clock.Wait()
	g.transport.CloseIdleConnections()
	if g.recorder != nil {
		err = errors.Join(err, g.recorder.Close())
	}
	return err
}
