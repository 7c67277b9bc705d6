package actors

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/engine"
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
	// Scheduler sets policy and limits; its MaxQueued is MaxRequests here.
	Scheduler scheduler.Config
	// MaxRequests bounds the open requests, each of a request's samples counted;
	// Open refuses beyond it. Default 1024.
	MaxRequests int
	// Tokenizers is the number of tokenizer workers. Default: half the
	// processors, 1 to 4.
	Tokenizers int
	// EventRing is how many events a late subscriber can still get. Default 65536.
	EventRing int
	// Log takes failures and, at debug, steps. Default none.
	Log *zap.Logger
}

func (c Config) withDefaults() Config {
	if c.MaxRequests == 0 {
		c.MaxRequests = 1024
	}
	if c.Tokenizers == 0 {
		c.Tokenizers = min(max(runtime.GOMAXPROCS(0)/2, 1), 4)
	}
	if c.EOS == nil && c.Tokenizer != nil {
		c.EOS = c.Tokenizer.EOS()
	}
	if c.EventRing == 0 {
		c.EventRing = 1 << 16
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	// The door's limit is the one that counts; the scheduler behind it must have
	// room for all that it let in, and counts samples too.
	c.Scheduler.MaxQueued = c.MaxRequests
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Backend == nil {
		errs = append(errs, errors.New("actors: Backend is nil, give one (engine/cpu has one)"))
	}
	positive := func(field string, v int) {
		if v < 1 {
			errs = append(errs, fmt.Errorf("actors: %s is %d, want at least 1", field, v))
		}
	}
	positive("MaxRequests", c.MaxRequests)
	positive("Tokenizers", c.Tokenizers)
	positive("EventRing", c.EventRing)
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

	workers   []*process // tokenizers
	scheduler *process
	engine    *process
	pool      *process
	deliverer *process
	events    *process
	processes []*process // all of them

	started time.Time
	cause   error         // why it ends; set before ending is closed
	once    sync.Once     // guards cause
	ending  chan struct{} // closed when the end begins
	ended   chan struct{} // closed when nothing runs any more
	final   atomic.Pointer[Stats]
	leaked  atomic.Int64 // pages that did not come back to the pool
}

// Start checks the configuration and starts the actors. If it fails, Backend is
// still the caller's.
func Start(cfg Config) (*System, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	info := cfg.Backend.Info()
	core, err := scheduler.New(cfg.Scheduler, info)
	if err != nil {
		return nil, err
	}
	cfg.Scheduler = core.Config()
	ledger, err := mempool.NewPool(info.NumPages)
	if err != nil {
		return nil, err
	}
	s := &System{
		cfg: cfg, log: cfg.Log, started: time.Now(),
		ending: make(chan struct{}), ended: make(chan struct{}),
	}
	s.door = newDoor(s)
	// Receivers before senders, so that nobody ever lacks an address.
	s.events = s.spawn("events", stopOnPanic, func() receiver { return newEventsActor(cfg.EventRing) })
	s.deliverer = s.spawn("deliverer", stopOnPanic, func() receiver { return &delivererActor{} })
	s.pool = s.spawn("pool", stopOnPanic, func() receiver { return &poolActor{pool: ledger} })
	s.engine = s.spawn("engine", stopOnPanic, func() receiver { return newEngineActor(s, cfg.Backend) })
	s.scheduler = s.spawn("scheduler", stopOnPanic, func() receiver { return newSchedulerActor(s, core) })
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
	if n := s.leaked.Load(); n != 0 {
		return fmt.Errorf("actors: %d pages did not come back to the pool", n)
	}
	return nil
}

// keep waits for the cause of the end and then runs the shutdown. This is the
// only place where its order is written.
func (s *System) keep() {
	<-s.ending
	defer close(s.ended)
	// No new requests, and every open one has its ending, whatever comes next.
	s.door.close(s.cause)
	// Nothing computes any more, so nothing touches pages.
	s.end(s.engine)
	// The scheduler gives all its pages back; then the pool can count.
	s.end(s.scheduler)
	s.end(s.pool)
	s.end(s.deliverer)
	s.end(s.events)
	for _, w := range s.workers {
		s.end(w)
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

// Info describes the backend.
func (s *System) Info() engine.Info { return s.cfg.Backend.Info() }

// Stats are the figures of now, or of the end once the system has ended.
func (s *System) Stats(ctx context.Context) (Stats, error) {
	reply := make(chan Stats, 1)
	s.scheduler.tell(&askStats{reply})
	select {
	case st := <-reply:
		return st, nil
	case <-ctx.Done():
		return Stats{}, ctx.Err()
	case <-s.ended:
	}
	if st := s.final.Load(); st != nil {
		return *st, nil
	}
	return Stats{}, s.cause
}

// Waiting says of each sample that waits why, in the order in which the requests
// were opened; they are numbered from 1. Those whose text is still being tokenized
// are not among them. It costs the scheduler a look at each. Nobody waits once the system has ended: the error is why it did.
func (s *System) Waiting(ctx context.Context) ([]scheduler.Wait, error) {
	reply := make(chan []scheduler.Wait, 1)
	s.scheduler.tell(&askWaiting{reply})
	select {
	case waits := <-reply:
		return waits, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ended:
		return nil, s.cause
	}
}

// Stats are a system's figures.
type Stats struct {
	Scheduler scheduler.Metrics
	// Tenants are those with requests open, by name.
	Tenants []scheduler.TenantUsage
	Engine  engine.StepStats // summed over all steps, as the backend counted them
	// LeakedPages have no owner: granted to the scheduler but nobody's there, or,
	// after the end, not returned to the pool. Always 0.
	LeakedPages int
}
