package view

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
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
	Period time.Duration `default:"500ms" min:"10ms" max:"1m"`
	// Window is what hit rates and latencies are taken over. Default 10 s.
	Window time.Duration `default:"10s" max:"1h"`
	// History is the number of points that are kept. Default 300.
	History int `default:"300" min:"2" max:"10000"`
	// TreeNodes bounds the nodes that are shown, TreeDepth the nodes on a way from the
	// root; what is beyond is summed up. Default 2,000 and 64.
	TreeNodes int `default:"2000" min:"2" max:"20000"`
	TreeDepth int `default:"64" min:"1" max:"1<<20"`
	// TreeWalk bounds the nodes that are looked at. Steps wait for a walk, so it is
	// taken less often the longer it takes: for 1/200 of the time at most. Default 32,768.
	TreeWalk int `default:"1<<15" min:"1" max:"1<<20"`
	// Listed bounds each of the lists of requests. Default 64.
	Listed int `default:"64" min:"1" max:"10000"`
	// MaxWatchers bounds those who watch at a time. Default 64.
	MaxWatchers int `default:"64" min:"1" max:"10000"`
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
	c = bounds.Fill(c)
	if c.Access == nil {
		c.Access = func(*http.Request) (Access, string) { return Full, "" }
	}
	return c
}

// Validate reports every field of a config with defaults that can't be, by name and value.
func (c Config) Validate() error {
	errs := []error{bounds.Check("view", c)}
	if c.Source == nil {
		errs = append(errs, errors.New("view: Source is nil, want a node"))
	}
	if c.Window < c.Period {
		errs = append(errs, fmt.Errorf("view: Window is %v, want at least Period, %v", c.Window, c.Period))
	}
	return errors.Join(errs...)
}
