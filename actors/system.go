package actors

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer"
)

// ErrClosed ends requests that are open at Close, and refuses later ones.
var ErrClosed = errors.New("actors: closed")

// Config says what to run. Backend is required.
type Config struct {
	// Backend computes. A System that started owns and closes it.
	Backend engine.Backend
	// Tokenizer turns text into tokens and back. Without one, requests must be
	// given as tokens and pieces carry no text.
	Tokenizer *tokenizer.Tokenizer
	// EOS are the tokens that end an output. Default the tokenizer's.
	EOS []kv.Token
	// Scheduler sets policy and limits. Its MaxQueued, default and maximum
	// MaxRequests, counts the samples that wait in it. With Displace the default is
	// three quarters of what MaxRequests leaves beside MaxRunning: so a request that
	// may displace another one gets past this door to the full queue.
	Scheduler scheduler.Config
	// MaxRequests bounds the open requests, each of a request's samples counted;
	// Open refuses beyond it. Default 1024.
	MaxRequests int `default:"1024" min:"1"`
	// Tokenizers is the number of tokenizer workers. Default: half the
	// processors, 1 to 4.
	Tokenizers int `min:"1"`
	// FormatTimeout bounds how long the compiling of one Request.Format may take.
	// Default 5 s.
	FormatTimeout time.Duration `default:"5s" min:"0s"`
	// FormatBytes is how much memory compiled ones may take to be kept. Default 256 MiB.
	FormatBytes int `default:"256<<20" min:"1"`
	// EventRing is how many events the log keeps for late readers. Default: 65536.
	EventRing int `default:"1<<16" min:"1"`
	// Tiers say where KV goes that the device has no room for. Default: nowhere. Backend
	// must be an engine.Mover for them.
	Tiers Tiers
	// Pool is leased from beside other Systems, whose backends keep their KV in the same
	// memory. It has as many pages as the backend. It can't be had with Tiers. Default: the
	// System has a pool of its own.
	Pool *Pool
	// Log takes failures and, at debug, steps. Default none.
	Log *zap.Logger
}

func (c Config) withDefaults() Config {
	c = bounds.Fill(c)
	c.Tokenizers = cmp.Or(c.Tokenizers, min(max(runtime.GOMAXPROCS(0)/2, 1), 4))
	if c.EOS == nil && c.Tokenizer != nil {
		c.EOS = c.Tokenizer.EOS()
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Tiers.Flush == 0 {
		c.Tiers.Flush = DefaultFlush
	}
	// The door's limit is mostly the one that counts; the scheduler counts samples too.
	if c.Scheduler.MaxQueued == 0 {
		c.Scheduler.MaxQueued = c.MaxRequests
		if c.Scheduler.Displace && c.Backend != nil {
			running := c.Scheduler.WithDefaults(c.Backend.Info()).MaxRunning
			c.Scheduler.MaxQueued = max(1, (c.MaxRequests-running)*3/4)
		}
	}
	return c
}

func (c Config) validate() error {
	errs := []error{bounds.Check("actors", c), c.Tiers.validate()}
	if c.Backend == nil {
		errs = append(errs, errors.New("actors: Backend is nil, give one (engine/cpu has one)"))
	}
	if q := c.Scheduler.MaxQueued; q > c.MaxRequests {
		errs = append(errs, fmt.Errorf("actors: Scheduler.MaxQueued is %d, want at most MaxRequests, %d", q, c.MaxRequests))
	}
	if c.Backend != nil && c.Tokenizer != nil && c.Tokenizer.VocabSize() > c.Backend.Info().Vocab {
		errs = append(errs, fmt.Errorf("actors: the tokenizer has %d tokens, the model %d: they do not belong together",
			c.Tokenizer.VocabSize(), c.Backend.Info().Vocab))
	}
	return errors.Join(errs...)
}

// System is a running set of actors around one backend. Its methods may be
// called from any goroutine.
type System struct {
	cfg  Config
	log  *zap.Logger
	door *door

	turns     *process
	workers   []*process // tokenizers
	formats   *process
	compilers []*process
	scheduler *process
	engine    *process
	pool      *process
	deliverer *process
	processes []*process // all of them
	tiers     *hierarchy // nil: none
	events    *events.Log

	started time.Time
	cause   error         // why it ends; set before ending is closed
	once    sync.Once     // guards cause
	ending  chan struct{} // closed when the end begins
	ended   chan struct{} // closed when nothing runs any more
	final   atomic.Pointer[Stats]
}

// Start checks the configuration and starts the actors. If it fails, Backend is
// still the caller's.
func Start(cfg Config) (*System, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	info := cfg.Backend.Info()
	if cfg.Tokenizer != nil && cfg.Scheduler.Vocabulary == nil {
		cfg.Scheduler.Vocabulary = grammar.NewVocabulary(info.Vocab, func(t kv.Token) []byte { return []byte(cfg.Tokenizer.Text(t)) })
	}
	pool, owner, err := joinPool(&cfg, info.NumPages)
	if err != nil {
		return nil, err
	}
	s, err := startIn(cfg, info, pool, owner)
	if err != nil {
		pool.leave(owner)
	}
	return s, err
}

// startIn starts a System that has its place in a pool.
func startIn(cfg Config, info engine.Info, pool *Pool, owner mempool.Owner) (*System, error) {
	if cfg.Pool != nil {
		cfg.Scheduler.SharePages = pool.SharePages()
	}
	tiers, err := openTiers(&cfg)
	if err != nil {
		return nil, err
	}
	core, err := scheduler.New(cfg.Scheduler, info)
	if err != nil {
		return nil, errors.Join(err, tiers.abandon())
	}
	cfg.Scheduler = core.Config()
	s := &System{
		cfg: cfg, log: cfg.Log, started: time.Now(), tiers: tiers,
		ending: make(chan struct{}), ended: make(chan struct{}),
	}
	if err := tiers.begin(s, core); err != nil {
		return nil, errors.Join(err, tiers.abandon())
	}
	s.events = events.NewLog(events.LogConfig{KeepEvents: cfg.EventRing}, s.dump)
	s.door = newDoor(s)
	// Receivers before senders, so that nobody ever lacks an address.
	s.deliverer = s.spawn("deliverer", stopOnPanic, func() receiver { return &delivererActor{} })
	s.pool = s.spawn("pool", stopOnPanic, func() receiver { return &poolActor{pool: pool, owner: owner} })
	s.engine = s.spawn("engine", stopOnPanic, func() receiver { return newEngineActor(s, cfg.Backend) })
	s.scheduler = s.spawn("scheduler", stopOnPanic, func() receiver { return newSchedulerActor(s, core) })
	pool.tell(owner, s)
	s.formats = s.spawn("formats", stopOnPanic, func() receiver { return newFormatsActor(s) })
	for range compilers {
		s.compilers = append(s.compilers, s.spawn("compiler", restartOnPanic, func() receiver { return &compilerActor{s} }))
	}
	s.turns = s.spawn("turns", stopOnPanic, func() receiver { return newTurnsActor(s, cfg.Tokenizers) })
	for range cfg.Tokenizers {
		s.workers = append(s.workers, s.spawn("tokenizer", restartOnPanic, func() receiver { return &tokenizerActor{sys: s, tok: cfg.Tokenizer} }))
	}
	go s.keep()
	return s, nil
}

// now is the time that the scheduler sees: since the start, monotonic.
func (s *System) now() time.Duration { return time.Since(s.started) }

// fail begins the end with a cause; only the first one counts. It never waits.
func (s *System) fail(cause error) {
	s.once.Do(func() {
		s.cause = cause
		close(s.ending)
	})
}

// Close ends every open request with ErrClosed, stops the actors and closes the
// backend. It returns when nothing runs any more: nil, or why the system had
// failed before, or that pages were lost.
func (s *System) Close() error {
	s.fail(ErrClosed)
	<-s.ended
	if !errors.Is(s.cause, ErrClosed) {
		return s.cause
	}
	if st := s.final.Load(); st != nil && st.LeakedPages != 0 {
		return fmt.Errorf("actors: %d pages did not come back to the pool", st.LeakedPages)
	}
	return nil
}

// Done is closed when the system begins to end: by Close, or because it failed. Requests are
// refused from then on.
func (s *System) Done() <-chan struct{} { return s.ending }

// Err is nil while the system runs, then why it ends: ErrClosed after Close.
func (s *System) Err() error {
	select {
	case <-s.ending:
		return s.cause
	default:
		return nil
	}
}

// keep waits for the cause of the end and then runs the shutdown. This is the
// only place where its order is written.
func (s *System) keep() {
	<-s.ending
	defer close(s.ended)
	// No new requests, and every open one has its ending, whatever comes next.
	s.door.close(s.cause)
	s.flush()
	// Nothing computes any more and no moves are under way, so nothing touches pages.
	s.end(s.engine)
	// The scheduler gives all its pages back; then the pool can count.
	s.end(s.scheduler)
	s.end(s.pool)
	s.end(s.deliverer)
	s.events.Close(s.cause)
	s.end(s.turns)
	for _, w := range s.workers {
		s.end(w)
	}
	s.end(s.formats)
	for _, c := range s.compilers {
		s.end(c)
	}
	for _, p := range s.processes {
		p.loop.end()
	}
}

// end stops a process, if it still runs, and waits for it.
func (s *System) end(p *process) {
	p.stop()
	<-p.done
}

// Tokenizer is that of the Config.
func (s *System) Tokenizer() *tokenizer.Tokenizer { return s.cfg.Tokenizer }

// MaxRequests is that of the Config, with its default.
func (s *System) MaxRequests() int { return s.cfg.MaxRequests }

// Limits is the scheduler's configuration, with its defaults.
func (s *System) Limits() scheduler.Config { return s.cfg.Scheduler }

// Info describes the backend.
func (s *System) Info() engine.Info { return s.cfg.Backend.Info() }
