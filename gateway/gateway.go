package gateway

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/gateway/prompt"
	"github.com/coppice-llm/coppice/gateway/residency"
	"github.com/coppice-llm/coppice/internal/sites"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Gateway routes requests to the workers of a fleet. It is an http.Handler, and serves
// listeners itself. Its methods may be called from all goroutines.
type Gateway struct {
	cfg        Config
	log        *zap.Logger
	anybody    bool // no keys are asked for
	sites      *sites.Policy
	index      *residency.Residency
	subscriber *events.Subscriber
	registration
	replicas  *replicas // nil: it is the only gateway
	chooser   *chooser
	pools     atomic.Pointer[pools] // nil: all workers are one; written under mu
	words     atomic.Pointer[words]
	bytes     *words     // what it begins with: by bytes, unless a tokenizer was given
	learning  sync.Mutex // who fetches a tokenizer holds it
	transport *http.Transport
	proxy     *httputil.ReverseProxy
	routes    *http.ServeMux
	http      http.Server
	metrics   *metrics
	luggage   sync.Pool    // of *luggage
	buffers   sync.Pool    // of *[]byte
	via       string       // what it calls itself in the header Via
	bodies    atomic.Int64 // bytes that open requests hold

	roll atomic.Pointer[roll]

	// Under mu: who is of the fleet. Members are told to go under it and waited for without.
	mu      sync.Mutex
	members map[string]*member // by URL
	claims  map[uint64]*member // by number
	closed  bool

	ctx    context.Context // of the keepers and the clock
	stop   context.CancelFunc
	clock  sync.WaitGroup
	over   context.Context // ends with what Shutdown has no more time for
	finish context.CancelCauseFunc

	entry    sync.Mutex
	open     int
	draining bool
	idle     chan struct{}
}

// roll is who is there, for requests to read without a lock.
type roll struct {
	byID    map[kv.WorkerID]*member
	served  map[string]int // by model: healthy workers that serve it
	loras   map[string]bool
	tokens  map[string]int // by model: prompt and output of a request, at the worker that takes least of those who say
	models  []string       // ascending
	longest int            // tokens of a prompt that some worker may take; 0: one does not say
	plain   int            // workers that encode control tokens in messages as text
	ready   int            // healthy workers
	total   int

	pools  map[kv.WorkerID]router.PoolID // nil without pools
	pooled map[inPool]int                // healthy workers
}

// New makes a gateway and begins to ask its workers. It reports all faults of cfg at
// once.
func New(cfg Config) (*Gateway, error) {
	anybody := cfg.Tenant == nil
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Replicas != nil {
		cfg.Replicas.name(&cfg.Router)
	}
	g := &Gateway{cfg: cfg, log: cfg.Log, anybody: anybody, members: map[string]*member{}, claims: map[uint64]*member{}, idle: make(chan struct{})}
	g.roll.Store(&roll{})
	g.ctx, g.stop = context.WithCancel(context.Background())
	g.over, g.finish = context.WithCancelCause(context.Background())
	g.luggage.New = func() any { return &luggage{} }
	g.via = fmt.Sprintf("1.1 coppice-%016x", rand.Uint64())
	g.buffers.New = func() any { b := make([]byte, 32<<10); return &b }
	var err error
	if g.sites, err = sites.New(sites.Config{AnyHost: !anybody, AllowHosts: cfg.AllowHosts, Origins: cfg.CORS}); err != nil {
		return nil, fmt.Errorf("gateway: AllowHosts or CORS: %w", err)
	}
	if g.index, err = residency.New(cfg.Index); err != nil {
		return nil, err
	}
	if g.chooser, err = newChooser(&cfg, g.index); err != nil {
		return nil, err
	}
	p, err := newPools(&g.cfg)
	if err != nil {
		return nil, err
	}
	g.pools.Store(p)
	if cfg.Replicas != nil {
		g.chooser.replicate()
	}
	reader, err := prompt.New(cfg.Prompt)
	if err != nil {
		return nil, err
	}
	g.bytes = &words{reader: reader, digest: cfg.Tokenizer, exact: cfg.Prompt.Tokenizer != nil}
	g.words.Store(g.bytes)
	if g.metrics, err = newMetrics(g); err != nil {
		return nil, err
	}
	g.mount()
	// What can fail and must be closed comes last.
	if g.subscriber, err = events.NewSubscriber(events.SubscriberConfig{BlockTokens: g.chooser.blockTokens, OnChange: g.changed}, &beliefs{g.index, g.chooser}); err != nil {
		return nil, err
	}
	if err := g.SetWorkers(cfg.Workers); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	if cfg.NATS != nil {
		if g.watcher, err = nats.NewWatcher(nats.WatcherConfig{Config: g.toldOf(*cfg.NATS, "events and registration")}); err != nil {
			return nil, errors.Join(err, g.Close())
		}
		g.clock.Go(func() { g.watch(g.watcher.Changes()) })
	}
	if cfg.Replicas != nil {
		if g.replicas, err = newReplicas(g, *cfg.Replicas); err != nil {
			return nil, errors.Join(err, g.Close())
		}
	}
	g.clock.Go(g.tick)
	return g, nil
}

// tick is the gateway's clock.
func (g *Gateway) tick() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-t.C:
			g.chooser.tick()
			g.roll.Load().relieve(g.chooser.loads())
			g.regroup(time.Now())
		}
	}
}

// maxMembers bounds the workers, as the router does.
func (g *Gateway) maxMembers() int { return g.cfg.Router.MaxWorkers }

// SetWorkers makes all the given workers that there are; those that were given before and
// are not among them leave. Those that announced themselves stay, given before or not. A list that can't be changes nothing.
func (g *Gateway) SetWorkers(all []Worker) error {
	all = slices.Clone(all)
	for i := range all {
		all[i].URL = strings.TrimRight(all[i].URL, "/")
	}
	if err := validateWorkers(all); err != nil {
		return err
	}
	if len(all) > g.maxMembers() {
		return fmt.Errorf("gateway: %d workers, at most %d may be: raise Router.MaxWorkers", len(all), g.maxMembers())
	}
	given := make(map[string]*Worker, len(all))
	for i := range all {
		given[all[i].URL] = &all[i]
	}
	var gone []*member
	var errs []error
	g.mu.Lock()
	for url, m := range g.members {
		w := given[url]
		if m.announced && w == nil || w != nil && !m.announced && sameWorker(*w, m.given) {
			continue
		}
		gone = append(gone, m)
		delete(g.members, url)
		switch {
		case w != nil:
			errs = append(errs, g.admit(*w, false, m.caller, m))
		case m.called != "": // it stays by itself
			errs = append(errs, g.admit(Worker{URL: url}, true, m.caller, m))
		}
	}
	for _, w := range all {
		if g.members[w.URL] == nil {
			errs = append(errs, g.admit(w, false, caller{}, nil))
		}
	}
	g.mu.Unlock()
	g.dismiss(gone)
	g.enroll()
	return errors.Join(errs...)
}

func sameWorker(a, b Worker) bool {
	a.Ranks, b.Ranks = max(a.Ranks, 1), max(b.Ranks, 1)
	return a == b
}

// Announce takes a worker's card as that of a worker that is there. One that was given,
// or has announced itself already, is only asked again.
func (g *Gateway) Announce(c *card.Card) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.URL == "" {
		return fmt.Errorf("gateway: worker %s does not say at which URL it is: start it with --advertise", c.Name)
	}
	at := strings.TrimRight(c.URL, "/")
	g.mu.Lock()
	m := g.members[at]
	var err error
	if m != nil {
		if m.called != c.Name || c.Epoch >= m.epoch {
			m.called, m.epoch = c.Name, c.Epoch
		}
	} else {
		err = g.admit(Worker{URL: at}, true, caller{called: c.Name, epoch: c.Epoch}, nil)
	}
	g.mu.Unlock()
	if m == nil {
		g.enroll()
		return err
	}
	m.mu.Lock()
	known := m.card != nil && m.card.Epoch == c.Epoch
	m.mu.Unlock()
	if !known {
		m.nudge()
	}
	return nil
}

// Gone takes back what Announce said, by the worker's name and the epoch of its card: that of
// another process of the name stays. Epoch 0 is any.
func (g *Gateway) Gone(name string, epoch uint64) {
	g.mu.Lock()
	var gone []*member
	for url, m := range g.members {
		switch {
		case m.called != name || epoch != 0 && m.epoch != epoch:
		case m.announced:
			delete(g.members, url)
			gone = append(gone, m)
		default:
			m.caller = caller{} // it is given, too
		}
	}
	g.mu.Unlock()
	g.dismiss(gone)
	g.enroll()
}

// admit begins to ask a worker. The caller holds mu.
func (g *Gateway) admit(w Worker, announced bool, as caller, before *member) error {
	m, err := newMember(g, w)
	switch {
	case err != nil:
		return err
	case g.closed:
		return errClosed
	case len(g.members) >= g.maxMembers():
		return fmt.Errorf("%w: %d already, %s is one more: raise Router.MaxWorkers", errMany, len(g.members), w.URL)
	}
	m.caller, m.before = as, before
	m.announced = announced
	ctx, cancel := context.WithCancel(g.ctx)
	m.cancel = cancel
	g.members[w.URL] = m
	go m.keep(ctx)
	return nil
}

var (
	errClosed = errors.New("gateway: closed")
	errMany   = errors.New("gateway: too many workers")
)

// dismiss has members leave, and waits until they have.
func (g *Gateway) dismiss(gone []*member) {
	for _, m := range gone {
		m.cancel()
	}
	for _, m := range gone {
		<-m.done
		g.log.Info("worker left", m.field())
		g.forget(m.name())
	}
}

// forget ends the series of a name, unless a worker has it.
func (g *Gateway) forget(name string) {
	g.mu.Lock()
	taken := g.claims[card.IDOf(name)] != nil
	g.mu.Unlock()
	if !taken {
		g.metrics.forget(name)
		g.metrics.recent.Forget(name)
	}
}

// claim gives the number of a card to a member, if no other has it. One that announced
// itself, is lost, and began before the card's worker did, has moved: it leaves.
func (g *Gateway) claim(c *card.Card, m *member) bool {
	g.mu.Lock()
	other := g.claims[c.ID()]
	if other == nil || other == m {
		g.claims[c.ID()] = m
		g.mu.Unlock()
		return true
	}
	moved := other.announced && other.lostBefore(c.Epoch)
	if moved && g.members[other.given.URL] == other {
		delete(g.members, other.given.URL)
	}
	g.mu.Unlock()
	if !moved {
		return false
	}
	g.dismiss([]*member{other})
	return g.claim(c, m)
}

func (g *Gateway) unclaim(m *member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, other := range g.claims {
		if other == m {
			delete(g.claims, id)
		}
	}
}

// enroll writes the roll anew.
func (g *Gateway) enroll() { g.enrollAt(time.Now()) }

func (g *Gateway) enrollAt(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &roll{byID: map[kv.WorkerID]*member{}, served: map[string]int{}, loras: map[string]bool{}, tokens: map[string]int{}, total: len(g.members)}
	unlimited := false
	for id, m := range g.claims {
		r.byID[kv.WorkerID(id)] = m
		m.mu.Lock()
		healthy := 0
		if m.state == Healthy {
			healthy = 1
		}
		r.ready += healthy
		if m.card.ControlTokens == chat.Text.String() {
			r.plain++
		}
		switch n := m.card.MaxModelTokens; {
		case n <= 0:
			unlimited = true
		default:
			r.longest = max(r.longest, n)
		}
		for _, name := range m.models {
			r.served[name] += healthy
			if n := m.card.MaxModelTokens; n > 0 && (r.tokens[name] == 0 || n < r.tokens[name]) {
				r.tokens[name] = n
			}
		}
		for name := range m.loras {
			r.loras[name] = r.loras[name] || m.loras[name]
		}
		m.mu.Unlock()
	}
	if unlimited {
		r.longest = 0
	}
	for name := range r.served {
		r.models = append(r.models, name)
	}
	slices.Sort(r.models)
	g.group(r, now)
	g.roll.Store(r)
}

// as is how the workers read prompts: one longer than each of them takes need not be read to
// its end, and control tokens in messages are what they are to most.
func (r *roll) as() prompt.As {
	as := prompt.As{MaxTokens: math.MaxInt}
	if r.longest > 0 {
		as.MaxTokens = r.longest
	}
	if 2*r.plain > len(r.byID) {
		as.Controls = chat.Text
	}
	return as
}

// all are the members, by URL.
func (g *Gateway) all() []*member {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]*member, 0, len(g.members))
	for _, m := range g.members {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b *member) int {
		if a.given.URL < b.given.URL {
			return -1
		}
		return 1
	})
	return out
}
