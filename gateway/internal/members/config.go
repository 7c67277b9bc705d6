package members

import (
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/nats"
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
