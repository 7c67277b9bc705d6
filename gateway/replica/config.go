package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/internal/bounds"
)

// Config configures how routers reach each other. All routers of a fleet must have the same
// servers, prefix, topic, block size and Router.SessionTTL. The zero value works.
type Config struct {
	NATS  nats.Config // only URL, Prefix, Retry, Credentials, CA, Notify and Options are used
	Topic string      `default:"routers"` // separates fleets that share servers and prefix. Default: "routers"

	// Interval is the least time between two messages with events. Default: 2 ms.
	Interval time.Duration `default:"2ms" min:"100us" max:"1s"`
	// Heartbeat is the time between two messages that say that a router is alive. Default: 1 s.
	Heartbeat time.Duration `default:"1s" min:"1ms" max:"1m"`
	// Silence is how long a router may be silent before its reservations are dropped. Default: 5
	// s.
	Silence time.Duration `default:"5s" max:"1h"`

	between func(<-chan []byte) <-chan []byte // in tests: filters the received messages
}

// WithDefaults returns c with every zero field set to its default.
func (c Config) WithDefaults() Config { return bounds.Fill(c) }

// Validate reports all faults at once. Call it on the result of WithDefaults.
func (c *Config) Validate() error {
	err := bounds.Check("gateway: Replicas", c)
	if c.Silence < 2*c.Heartbeat {
		err = errors.Join(err, fmt.Errorf("gateway: Replicas.Silence is %v, want at least two Heartbeats, %v", c.Silence, 2*c.Heartbeat))
	}
	return err
}
