package members

import (
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// Config configures how workers are found and probed. All fields are required unless they say
// otherwise.
type Config struct {
	MaxWorkers  int
	BlockTokens int // tokens per block in events and in the index

	// Sink receives the events of workers.
	Sink   events.Sink
	Router Router
	// StillLost is called after each failed probe of a worker that has been lost since a time, NameUnused
	// when no worker has a name any longer. Read replaces the tokenizer for reading prompts; an error
	// keeps the previous one.
	StillLost  func(m *Member, since time.Time)
	NameUnused func(name string)
	Read       func(*TokenizerSet) error
	// Admit returns an error to refuse the worker at url with card c.
	Admit func(url string, c *card.Card) error

	Tokenizer   TokenizerSet  // the configured set; without a tokenizer one is fetched from a worker
	NATS        *nats.Config  // for registration and events; nil: none
	Bind        *Bind         // where to listen for the events of workers that publish nowhere else; nil: nowhere
	Consolidate []Sockets     // further event sources of each worker
	Approximate bool          // do not follow the events of workers
	Silence     time.Duration // how long no event may arrive from a worker that sends heartbeats
	Outlast     time.Duration // how long what is known of a cache outlasts an outage of NATS; 0: not at all
	Quiet       time.Duration // as in zmq.SourceConfig; 0: its default

	// Keyed says that the gateway requires API keys. Tenants says that it separates tenants'
	// caches by a function of its own, not as Coppice workers do.
	Keyed, Tenants bool

	Transport                http.RoundTripper
	Key                      string // the API key for workers; "": none
	ProbeEvery, ProbeTimeout time.Duration
	FailAfter                int // failed probes in a row that make a worker lost
	Log                      *zap.Logger
}

// Router is told of each change of a worker, on the goroutine that causes it. Its methods must not block
// for long, nor wait for a worker to leave. An error refuses the worker.
type Router interface {
	// Join adds a rank, which may be chosen once its worker is healthy. blind says that the rank sends no events.
	Join(r kv.Rank, c *card.Card, blind bool) error
	// Respec updates the models of a joined rank, or the maximal length of its prompts and outputs.
	Respec(r kv.Rank, c *card.Card) error
	// SetHealth says whether a rank is healthy, draining or lost: after each successful probe, and when the worker is lost.
	SetHealth(r kv.Rank, h router.Health)
	// SetEventsLive reports that the events of a rank arrive, or no longer do.
	SetEventsLive(r kv.Rank, live bool)
	// Leave removes a rank: it gets no more requests.
	Leave(r kv.Rank)
	// Regroup brings a new summary. It is called under the fleet's lock.
	Regroup(s *Summary, now time.Time)
}
