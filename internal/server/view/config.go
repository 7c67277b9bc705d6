package view

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// Config says what a Feed samples and who may see it. Source is required.
type Config struct {
	Source  Source
	Model   string // as it is asked for
	Version string // of the server
	Note    string // a short sentence to show beside the model; may be empty
	// Text shows tokens, as Texts does; nil shows none. It is called by one goroutine.
	Text func([]kv.Token) string
	// Access decides what a request may see. Default: Full for everybody, right for a
	// server without keys.
	Access func(*http.Request) (_ Access, tenant string)

	// Period is the time between two samples. Default 500 ms.
	Period time.Duration
	// Window is what hit rates and latencies are taken over. Default 10 s.
	Window time.Duration
	// History is the number of points that are kept. Default 300.
	History int
	// TreeNodes bounds the nodes that are shown, TreeDepth the nodes on a way from the
	// root; what is beyond is summed up. Default 2,000 and 64.
	TreeNodes int
	TreeDepth int
	// TreeWalk bounds the nodes that are looked at. Steps wait for a walk, so it is
	// taken less often the longer it takes: for 1/200 of the time at most. Default 32,768.
	TreeWalk int
	// Listed bounds each of the lists of requests. Default 64.
	Listed int
	// MaxWatchers bounds those who watch at a time. Default 64.
	MaxWatchers int
}

// Access is what somebody may see.
type Access uint8

// The accesses.
const (
	Denied   Access = iota // nothing
	Redacted               // figures of all together: nothing of single requests, prompts and tenants
	Full                   // all
)

// ErrTooMany is wrapped by what Watch gives if MaxWatchers watch already.
var ErrTooMany = errors.New("view: too many watchers")

// ErrClosed is what Watch gives after Close.
var ErrClosed = errors.New("view: closed")

// WithDefaults is c with every zero field filled in.
func (c Config) WithDefaults() Config {
	set := func(field *int, v int) {
		if *field == 0 {
			*field = v
		}
	}
	if c.Period == 0 {
		c.Period = 500 * time.Millisecond
	}
	if c.Window == 0 {
		c.Window = 10 * time.Second
	}
	set(&c.History, 300)
	set(&c.TreeNodes, 2000)
	set(&c.TreeDepth, 64)
	set(&c.TreeWalk, 1<<15)
	set(&c.Listed, 64)
	set(&c.MaxWatchers, 64)
	if c.Access == nil {
		c.Access = func(*http.Request) (Access, string) { return Full, "" }
	}
	return c
}

// Validate reports every field of a config with defaults that can't be, by name and value.
func (c Config) Validate() error {
	var errs []error
	if c.Source == nil {
		errs = append(errs, errors.New("view: Source is nil, want a node"))
	}
	within := func(field string, v, lo, hi int) {
		if v < lo || v > hi {
			errs = append(errs, fmt.Errorf("view: %s %d, want %d to %d", field, v, lo, hi))
		}
	}
	if c.Period < 10*time.Millisecond || c.Period > time.Minute {
		errs = append(errs, fmt.Errorf("view: Period %v, want 10ms to 1m", c.Period))
	}
	if c.Window < c.Period || c.Window > time.Hour {
		errs = append(errs, fmt.Errorf("view: Window %v, want Period (%v) to 1h", c.Window, c.Period))
	}
	within("History", c.History, 2, 10_000)
	within("TreeNodes", c.TreeNodes, 2, 20_000)
	within("TreeDepth", c.TreeDepth, 1, 1<<20)
	within("TreeWalk", c.TreeWalk, 1, 1<<20)
	within("Listed", c.Listed, 1, 10_000)
	within("MaxWatchers", c.MaxWatchers, 1, 10_000)
	return errors.Join(errs...)
}
