package members

import (
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/kv"
)

// Config configures how workers are found and probed. All fields are required unless they say
// otherwise.
type Config struct {
	MaxWorkers  int
	BlockTokens int // tokens per block in events and in the index

	// Sink receives the events of workers.
	Sink events.Sink
	// Apply receives each change, on the goroutine that causes it. It must not block for long,
	// nor wait for a worker to leave.
	Apply func(Change) error
	// Admit returns an error to refuse the worker at url with card c.
	Admit func(url string, c *card.Card) error

	Tokenizer   TokenizerSet  // the configured set; without a tokenizer one is fetched from a worker
	NATS        *nats.Config  // for registration and events; nil: none
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

// Change is a change of a worker or of the fleet: one of the types of this file.
type Change any

// Joined adds a rank, which may be chosen once its worker is healthy. Blind says that the rank
// sends no events. An error from Apply refuses the worker.
type Joined struct {
	Rank  kv.Rank
	Card  *card.Card
	Blind bool
}

// Changed updates the models of a joined rank, or the maximal length of its prompts and outputs.
// An error from Apply refuses the worker.
type Changed struct {
	Rank kv.Rank
	Card *card.Card
}

// Health says whether a rank is healthy, draining or lost. It is sent after each successful
// probe, and when the worker is lost.
type Health struct {
	Rank  kv.Rank
	State State
}

// EventsLive reports that the events of a rank arrive, or no longer do.
type EventsLive struct {
	Rank kv.Rank
	Live bool
}

// Left removes a rank: it gets no more requests.
type Left struct{ Rank kv.Rank }

// Enrolled brings a new snapshot. It is sent under the fleet's lock.
type Enrolled struct{ Snapshot *Snapshot }

// StillLost reports that another probe of a lost worker has failed.
type StillLost struct {
	Member *Member
	Since  time.Time // time of its loss
}

// NameUnused reports that no worker has this name now.
type NameUnused struct{ Name string }

// TokenizerChanged replaces the tokenizer for reading prompts. An error from Apply keeps the previous one.
type TokenizerChanged struct{ Tokenizer *TokenizerSet }
