package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/internal/bounds"
)

// Config says how routers reach each other. All have the same servers, prefix, topic, block
// size and Router.SessionTTL. The zero value works.
type Config struct {
	NATS  nats.Config // URL, Prefix, Retry, Credentials, CA, Notify and Options count
	Topic string      `default:"routers"` // one for each fleet among those that share servers and prefix. Default: "routers"

	// Interval is the least time between two messages of events. Default: 2 ms.
	Interval time.Duration `default:"2ms" min:"100us" max:"1s"`
	// Heartbeat is how often a router says that it is there. Default: 1 s.
	Heartbeat time.Duration `default:"1s" min:"1ms" max:"1m"`
	// Silence is how long a router may say nothing before its reservations are forgotten.
	// Default: 5 s.
	Silence time.Duration `default:"5s" max:"1h"`

	between func(<-chan []byte) <-chan []byte // tests: changes messages on their way
}

// WithDefaults is c with every zero field filled in.
func (c Config) WithDefaults() Config { return bounds.Fill(c) }

// Validate reports all faults at once. It expects defaults to be filled in.
func (c *Config) Validate() error {
	err := bounds.Check("gateway: Replicas", c)
	if c.Silence < 2*c.Heartbeat {
		err = errors.Join(err, fmt.Errorf("gateway: Replicas.Silence is %v, want at least two Heartbeats, %v", c.Silence, 2*c.Heartbeat))
	}
	return err
}
