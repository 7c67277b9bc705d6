package view

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
)

// Config configures the source of a Feed and which requests may see it. Source is required.
type Config struct {
	Source  Source
	Model   string // the model's name in requests
	Version string // of the server
	Note    string // a short sentence to show next to the model; may be empty
	// Text renders tokens as text, see Texts; nil renders none. One goroutine calls it.
	Text func([]kv.Token) string
	// Access decides how much a request may see, and names its tenant. Default: Full for every
	// request, which suits a server without keys.
	Access func(*http.Request) (_ Access, tenant string)

	// Period is the time between two samples. Default 500 ms.
	Period time.Duration `default:"500ms" min:"10ms" max:"1m"`
	// Window is the time over which hit rates and latencies are taken. Default 10 s.
	Window time.Duration `default:"10s" max:"1h"`
	// History is the number of points kept. Default 300.
	History int `default:"300" min:"2" max:"10000"`
	// TreeNodes bounds the number of nodes shown, and TreeDepth their depth. Nodes that are left
	// out are summed up in one node below their parent. Defaults 2,000 and 64.
	TreeNodes int `default:"2000" min:"2" max:"20000"`
	TreeDepth int `default:"64" min:"1" max:"1<<20"`
	// TreeWalk bounds the nodes visited per walk of the tree. Steps wait for a walk, so walks
	// take at most 1/200 of the time: the longer a walk takes, the later the next one. Default
	// 32,768.
	TreeWalk int `default:"1<<15" min:"1" max:"1<<20"`
	// Listed bounds each of the lists of requests. Default 64.
	Listed int `default:"64" min:"1" max:"10000"`
	// MaxWatchers bounds the concurrent watches. Default 64.
	MaxWatchers int `default:"64" min:"1" max:"10000"`
}

// Access is how much a caller may see.
type Access uint8

// Levels of access, ascending.
const (
	Denied   Access = iota // nothing
	Redacted               // totals only: no single requests, prompts or tenants
	Full                   // everything
)

// ErrTooMany is returned, wrapped, by Watch when MaxWatchers watches are open.
var ErrTooMany = errors.New("view: too many watchers")

// ErrClosed is returned by Watch after Close.
var ErrClosed = errors.New("view: closed")

// WithDefaults returns c with every zero field set to its default.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	if c.Access == nil {
		c.Access = func(*http.Request) (Access, string) { return Full, "" }
	}
	return c
}

// Validate reports every invalid field by name and value. Call it on the result of WithDefaults.
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
