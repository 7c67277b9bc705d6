package members

import (
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/nats"
)

// Config says how workers are found and asked. All fields but those that say so are needed.
type Config struct {
	MaxWorkers  int
	BlockTokens int // of events and of the index

	// Sink takes what the workers' events tell.
	Sink events.Sink
	// Apply takes each change, on the goroutine that it happens on. It must not block for
	// long, nor wait for a worker to leave.
	Apply func(Change) error
	// Admit refuses a worker at a URL by its card, if it returns an error.
	Admit func(url string, c *card.Card) error

	Tokenizer   TokenizerSet  // that was given; without one a worker's is fetched
	NATS        *nats.Config  // where workers register and have events; nil: nowhere
	Consolidate []Sockets     // further caches of each worker, that publish for themselves
	Approximate bool          // no events are followed
	Silence     time.Duration // how long events with a heartbeat may be silent
	Quiet       time.Duration // as in zmq.SourceConfig; 0: its default

	// Keyed: the router asks for API keys. Tenants: it keeps their caches apart as it was told to,
	// and not as workers of Coppice do.
	Keyed, Tenants bool

	Transport                http.RoundTripper
	Key                      string // for questions to workers; "": none
	ProbeEvery, ProbeTimeout time.Duration
	FailAfter                int // failures in a row that make a worker lost
	Log                      *zap.Logger
}
