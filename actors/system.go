package actors

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/events/eventlog"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/textcache"
)

// ErrClosed ends requests that are open at Close, and refuses later ones.
var ErrClosed = errors.New("actors: closed")

// System is a running set of actors around one backend. Its methods may be
// called from any goroutine.
type System struct {
	cfg      Config
	requests *openRequests

	turns     *process
	workers   []*process // tokenizers
	texts     *textcache.Cache
	formats   *process
	compilers []*process
	scheduler *process
	engine    *process
	pool      *process
	deliverer *process
	processes []*process // all of the above
	tiers     *hierarchy // nil: none configured
	events    *eventlog.Log

	started time.Time
	cause   error         // why the system ended; set before ending is closed
	once    sync.Once     // guards cause
	ending  chan struct{} // closed when the shutdown begins
	ended   chan struct{} // closed when all actors have stopped
	final   atomic.Pointer[Stats]
}

// Start checks the configuration and starts the actors. If it returns an error, the caller
// still owns Backend.
func Start(cfg Config) (*System, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	info := cfg.Backend.Info()
	if cfg.Tokenizer != nil && cfg.Scheduler.Vocabulary == nil {
		cfg.Scheduler.Vocabulary = newVocabulary(info.Vocab, cfg.Tokenizer)
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

// newVocabulary returns the vocabulary of tok's tokens for a model with a vocabulary of this size.
func newVocabulary(size int, tok *tokenizer.Tokenizer) *grammar.Vocabulary {
	contents := map[kv.Token]string{}
	for _, content := range tok.ControlTokens() {
		if t, ok := tok.AddedToken(content); ok {
			contents[t] = content
		}
	}
	return grammar.NewSpecialVocabulary(size, func(t kv.Token) []byte { return []byte(tok.Text(t)) }, func(t kv.Token) string { return contents[t] })
}

// startIn starts a System after it has joined pool as owner.
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
		cfg: cfg, started: time.Now(), tiers: tiers,
		ending: make(chan struct{}), ended: make(chan struct{}),
	}
	s.events, err = eventlog.New(eventlog.Config{KeepEvents: cfg.EventRing}, s.dump)
	if err := errors.Join(err, tiers.begin(s, core)); err != nil {
		return nil, errors.Join(err, tiers.abandon())
	}
	s.requests = newOpenRequests(s)
	// Spawn receivers before senders, so that every sender finds its receiver's address.
	s.deliverer = s.spawn("deliverer", stopOnPanic, func() receiver { return &delivererActor{} })
	s.pool = s.spawn("pool", stopOnPanic, func() receiver { return &poolActor{pool: pool, owner: owner} })
	s.engine = s.spawn("engine", stopOnPanic, func() receiver { return newEngineActor(s, cfg.Backend) })
	s.scheduler = s.spawn("scheduler", stopOnPanic, func() receiver { return newSchedulerActor(s, core) })
	pool.tell(owner, s)
	s.formats = s.spawn("formats", stopOnPanic, func() receiver { return newFormatsActor(s) })
	for range compilers {
		s.compilers = append(s.compilers, s.spawn("compiler", restartOnPanic, func() receiver { return &compilerActor{s} }))
	}
	s.texts = textcache.New(cfg.Tokenizer, cfg.TextBytes)
	s.turns = s.spawn("turns", stopOnPanic, func() receiver { return newTurnsActor(s, cfg.Tokenizers) })
	for range cfg.Tokenizers {
		s.workers = append(s.workers, s.spawn("tokenizer", restartOnPanic, func() receiver { return &tokenizerActor{sys: s, tok: cfg.Tokenizer} }))
	}
	go s.awaitEnd()
	return s, nil
}

// now returns the time since Start. It is monotonic and the only clock that the scheduler sees.
func (s *System) now() time.Duration { return time.Since(s.started) }

// Close ends every open request with ErrClosed, stops the actors and closes the backend. It
// returns once all actors have stopped: nil, the failure that had ended the system before, or
// an error if pages were leaked.
func (s *System) Close() error {
	s.fail(ErrClosed)
	<-s.ended
	if !errors.Is(s.cause, ErrClosed) {
		return s.cause
	}
	if st := s.final.Load(); st != nil && st.LeakedPages != 0 {
		return fmt.Errorf("actors: %d pages were not returned to the pool", st.LeakedPages)
	}
	return nil
}

// fail starts the shutdown. cause becomes the reason of the end, unless an earlier call has
// set one. It never blocks.
func (s *System) fail(cause error) {
	s.once.Do(func() {
		s.cause = cause
		close(s.ending)
	})
}

// Done returns a channel that is closed when the system begins to end, by Close or after a
// failure. From then on requests are refused.
func (s *System) Done() <-chan struct{} { return s.ending }

// Err returns nil while the system runs, then the cause of its end: ErrClosed after Close.
func (s *System) Err() error {
	select {
	case <-s.ending:
		return s.cause
	default:
		return nil
	}
}

// awaitEnd waits for the cause of the end, then runs the shutdown. The order of the shutdown is
// written only here.
func (s *System) awaitEnd() {
	<-s.ending
	defer close(s.ended)
	// From here on Open refuses, and every open request has its ending, even if a later stage
	// fails.
	s.requests.close(s.cause)
	s.flush()
	// Once the engine has stopped, no step and no move touches a page.
	s.end(s.engine)
	// The scheduler returns all of its pages first, so that the pool can count leaks.
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

// end stops a process, if it still runs, and waits until it has stopped.
func (s *System) end(p *process) {
	p.stop()
	<-p.done
}

// Tokenizer returns Config.Tokenizer.
func (s *System) Tokenizer() *tokenizer.Tokenizer { return s.cfg.Tokenizer }

// Memory returns Config.Memory, or its default.
func (s *System) Memory() *Memory { return s.cfg.Memory }

// MaxRequests returns Config.MaxRequests, defaults applied.
func (s *System) MaxRequests() int { return s.cfg.MaxRequests }

// Limits returns the scheduler's configuration, defaults applied.
func (s *System) Limits() scheduler.Config { return s.cfg.Scheduler }

// Pooling returns Config.Pooling, or its default.
func (s *System) Pooling() scheduler.Pooling { return s.cfg.Pooling }

// Info describes the backend.
func (s *System) Info() engine.Info { return s.cfg.Backend.Info() }
