package members

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/events/zmq"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Fleet is the list of workers. Its methods may be called from any goroutine.
type Fleet struct {
	cfg         Config
	log         *zap.Logger
	summary     atomic.Pointer[Summary]
	tokenizers  tokenizers
	subscribers []*events.Subscriber // of the workers' own events, and of each of Config.Consolidate
	watcher     *nats.Watcher        // nil: no registration
	troubles    troubles
	hubs        hubs
	applying    sync.Mutex // held while applyEventsLive runs
	ctx         context.Context
	stop        context.CancelFunc
	background  sync.WaitGroup // the goroutines for registrations and lingering members

	// Members are cancelled under mu, but waited for without it.
	mu      sync.Mutex
	members map[string]*Member // by URL
	claims  map[uint64]*Member // members that have joined, by ID
	closed  bool
}

var (
	errClosed = errors.New("gateway: closed")
	errMany   = errors.New("gateway: too many workers")
)

// Summary returns the current summary.
func (f *Fleet) Summary() *Summary { return f.summary.Load() }

// All returns the members, ascending by URL.
func (f *Fleet) All() []*Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Values(f.members), func(a, b *Member) int { return strings.Compare(a.cfg.URL, b.cfg.URL) })
}

// Enroll makes a new summary, gives it to the router and stores it.
func (f *Fleet) Enroll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := summaryOf(f.claims, len(f.members))
	f.cfg.Router.Regroup(s, time.Now())
	f.summary.Store(s)
}

// dismiss ends the keepers of the members gone and waits for them.
func (f *Fleet) dismiss(gone []*Member) {
	for _, m := range gone {
		m.cancel()
	}
	for _, m := range gone {
		<-m.done
		f.log.Info("worker left", m.Field())
		f.Forget(m.Name())
	}
}

// Forget calls Config.NameUnused for a name, unless a joined worker has it.
func (f *Fleet) Forget(name string) {
	f.mu.Lock()
	taken := f.claims[card.IDOf(name)] != nil
	f.mu.Unlock()
	if !taken {
		f.cfg.NameUnused(name)
	}
}

// claim gives the ID of s.card to m and stores s as its description. It returns false if another
// member has the ID. But if that member only registered itself, is lost, and its process is
// older than the process of s.card, then the worker has moved to another URL: the other member
// leaves, and m gets the ID.
func (f *Fleet) claim(m *Member, s description) bool {
	f.mu.Lock()
	id := s.card.ID()
	other := f.claims[id]
	if other == nil || other == m {
		f.claims[id] = m
		m.mu.Lock()
		m.description = s
		m.mu.Unlock()
		f.mu.Unlock()
		return true
	}
	moved := other.registered.onlyRegistered && other.lostBefore(s.card.Epoch)
	if moved && f.members[other.cfg.URL] == other {
		delete(f.members, other.cfg.URL)
	}
	f.mu.Unlock()
	if !moved {
		return false
	}
	f.dismiss([]*Member{other})
	return f.claim(m, s)
}

// unclaim releases a member's ID.
func (f *Fleet) unclaim(m *Member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.claims, func(_ uint64, other *Member) bool { return other == m })
}

// Suspect reports that a request could not connect to a rank of m, because of err. The rank gets
// no requests until the worker has answered a probe; if that probe fails, the worker is lost.
func (f *Fleet) Suspect(m *Member, rank kv.Rank, err error) {
	if f.Summary().ByID[rank.Worker] != m {
		return // another member has the ID by now
	}
	m.suspect(f.cfg.FailAfter)
	f.cfg.Router.SetHealth(rank, router.Lost)
	f.log.Warn("worker does not take requests", m.Field(), zap.Error(err))
	m.Nudge()
}

// troubles holds the current problem of each NATS connection, by its purpose.
type troubles struct {
	sync.Mutex
	by map[string]error
}

// Notify returns a function that stores and logs the current problem of a connection; nil means
// that the connection works again. what is the purpose of the connection.
func (f *Fleet) Notify(what string) func(error) {
	return func(err error) {
		f.troubles.Lock()
		if delete(f.troubles.by, what); err != nil {
			f.troubles.by[what] = err
		}
		f.troubles.Unlock()
		if err == nil {
			f.log.Info("NATS works again", zap.String("for", what))
			return
		}
		f.log.Warn("NATS has a problem; retrying", zap.String("for", what), zap.Error(err))
	}
}

// Troubles returns the current problems, one sentence each. Without problems the result is
// empty, but not nil.
func (f *Fleet) Troubles() []string {
	f.troubles.Lock()
	defer f.troubles.Unlock()
	all := []string{}
	for _, what := range slices.Sorted(maps.Keys(f.troubles.by)) {
		all = append(all, fmt.Sprintf("NATS has a problem, so there is no news of %s: %v", what, f.troubles.by[what]))
	}
	return all
}

// Registers reports whether workers may register over NATS.
func (f *Fleet) Registers() bool { return f.cfg.NATS != nil }

// New makes a fleet without workers. Start turns on registration.
func New(cfg Config) (*Fleet, error) {
	f := &Fleet{cfg: cfg, log: cfg.Log, members: map[string]*Member{}, claims: map[uint64]*Member{}, troubles: troubles{by: map[string]error{}}, hubs: hubs{all: map[uint32]*zmq.Hub{}, seen: map[string]bool{}}}
	f.summary.Store(&Summary{})
	f.tokenizers.now.Store(&f.cfg.Tokenizer)
	f.ctx, f.stop = context.WithCancel(context.Background())
	if err := f.subscribe(); err != nil || cfg.Bind == nil {
		return f, err
	}
	_, err := f.hub(0)
	return f, err
}

// Start lets workers register over NATS, if Config.NATS is set.
func (f *Fleet) Start() error {
	if f.cfg.NATS == nil {
		return nil
	}
	at := *f.cfg.NATS
	if at.Notify == nil {
		at.Notify = f.Notify("events and registration")
	}
	var err error
	if f.watcher, err = nats.NewWatcher(nats.WatcherConfig{Config: at}); err == nil {
		f.background.Go(func() { f.watch(f.watcher.Changes()) })
	}
	return err
}

// Close removes all workers and returns when all goroutines have ended.
func (f *Fleet) Close() (err error) {
	f.mu.Lock()
	f.closed = true
	all := slices.Collect(maps.Values(f.members))
	clear(f.members)
	f.mu.Unlock()
	f.dismiss(all)
	f.stop()
	if f.watcher != nil {
		err = errors.Join(err, f.watcher.Close())
	}
	f.background.Wait()
	for _, s := range f.subscribers {
		s.Close()
	}
	return errors.Join(err, f.closeHubs())
}

// Summary describes the workers at one time. It never changes, so it is read without a lock.
type Summary struct {
	ByID   map[kv.WorkerID]*Member // workers that have answered and were not refused
	Served map[string]int          // by model: number of healthy workers that serve it
	LoRAs  map[string]bool         // models that are adapters
	// Tokens is, by model, the most tokens of prompt and output together that every worker of
	// the model takes. Workers whose limit is unknown do not count.
	Tokens  map[string]int
	Models  []string // ascending
	Longest int      // most prompt tokens that any worker takes; 0: the limit of some worker is unknown
	Plain   int      // workers that encode control tokens in messages as text
	// AutoTools and NoTools count the workers by what they do with tools that their template does not print.
	AutoTools, NoTools int
	Foreign            int // workers that are not Coppice
	Ready              int // healthy workers
	Total              int // workers in any state
}

// AnyName in a worker's list of models means that the worker takes requests for any name; see server.AnyName.
const AnyName = "*"

// Serving reports whether a worker serves the model. If it does so only because it takes any name, Serving replaces the
// name by AnyName.
func (s *Summary) Serving(model *string) bool {
	if _, ok := s.Served[*model]; ok {
		return true
	}
	_, ok := s.Served[AnyName]
	if ok = ok && *model != ""; ok {
		*model = AnyName
	}
	return ok
}

// summaryOf makes a summary of the joined members, given by ID in claims. total is the number
// of all members.
func summaryOf(claims map[uint64]*Member, total int) *Summary {
	s := &Summary{ByID: map[kv.WorkerID]*Member{}, Served: map[string]int{}, LoRAs: map[string]bool{}, Tokens: map[string]int{}, Total: total}
	unlimited := false
	for id, m := range claims {
		s.ByID[kv.WorkerID(id)] = m
		m.mu.Lock()
		c, healthy := m.description.card, 0
		if m.state == Healthy {
			healthy = 1
		}
		for name, adapter := range m.description.loras {
			s.LoRAs[name] = s.LoRAs[name] || adapter
		}
		if m.description.foreign {
			s.Foreign++
		}
		m.mu.Unlock()
		s.Ready += healthy
		if c.ControlTokens == chat.Text.String() {
			s.Plain++
		}
		switch c.ToolsPrompt {
		case chat.AutoTools.String():
			s.AutoTools++
		case chat.NoToolsPrompt.String():
			s.NoTools++
		}
		most := c.MaxModelTokens
		unlimited = unlimited || most <= 0
		s.Longest = max(s.Longest, most)
		for _, name := range c.Models {
			s.Served[name] += healthy
			if most > 0 && (s.Tokens[name] == 0 || most < s.Tokens[name]) {
				s.Tokens[name] = most
			}
		}
	}
	if unlimited {
		s.Longest = 0
	}
	s.Models = slices.Sorted(maps.Keys(s.Served))
	return s
}
