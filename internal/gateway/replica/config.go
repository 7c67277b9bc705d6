package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/events/nats"
)

// Config says how routers reach each other. All have the same servers, prefix, topic, block
// size and Router.SessionTTL. The zero value works.
type Config struct {
	NATS  nats.Config // URL, Prefix, Retry, Credentials, CA, Notify and Options count
	Topic string      // one for each fleet among those that share servers and prefix. Default: "routers"

	// Interval is the least time between two messages of events. Default: 2 ms.
	Interval time.Duration
	// Heartbeat is how often a router says that it is there. Default: 1 s.
	Heartbeat time.Duration
	// Silence is how long a router may say nothing before its reservations are forgotten.
	// Default: 5 s.
	Silence time.Duration

	between func(<-chan []byte) <-chan []byte // tests: changes messages on their way
}

// WithDefaults is c with every zero field filled in.
func (c Config) WithDefaults() Config {
	if c.Topic == "" {
		c.Topic = "routers"
	}
	for _, f := range []struct {
		field *time.Duration
		v     time.Duration
	}{{&c.Interval, 2 * time.Millisecond}, {&c.Heartbeat, time.Second}, {&c.Silence, 5 * time.Second}} {
		if *f.field == 0 {
			*f.field = f.v
		}
	}
	return c
}

// Validate reports all faults at once. It expects defaults to be filled in.
func (c *Config) Validate() error {
	var errs []error
	for _, f := range []struct {
		name      string
		v, lo, hi time.Duration
	}{{"Interval", c.Interval, 100 * time.Microsecond, time.Second}, {"Heartbeat", c.Heartbeat, time.Millisecond, time.Minute}, {"Silence", c.Silence, 2 * c.Heartbeat, time.Hour}} {
		if f.v < f.lo || f.v > f.hi {
			errs = append(errs, fmt.Errorf("gateway: Replicas.%s is %v, want %v to %v", f.name, f.v, f.lo, f.hi))
		}
	}
	return errors.Join(errs...)
}
