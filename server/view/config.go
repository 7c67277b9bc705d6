package view

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer"
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
	Period time.Duration `default:"500ms"`
	// Listed bounds each of the lists of requests. Default 64.
	Listed int `default:"64"`
	// MaxWatchers bounds the concurrent watches. Default 64.
	MaxWatchers int `default:"64"`
}

const (
	window     = 10 * time.Second // over which hit rates and latencies are taken
	historyLen = 300              // points kept
	// treeNodes bounds the number of nodes shown, and treeDepth their depth. Nodes that are left
	// out are summed up in one node below their parent.
	treeNodes = 2000
	treeDepth = 64
	// treeWalk bounds the nodes visited per walk of the tree. Steps wait for a walk, so walks
	// take at most 1/walkShare of the time: the longer a walk takes, the later the next one.
	treeWalk  = 1 << 15
	walkShare = 200
)

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

// withDefaults returns c with every zero field set to its default.
func (c Config) withDefaults() Config {
	c = bounds.Fill(c)
	if c.Access == nil {
		c.Access = func(*http.Request) (Access, string) { return Full, "" }
	}
	return c
}

// Source is the observed node; *coppice.Node implements it.
type Source interface {
	Info() engine.Info
	Stats(context.Context) (coppice.Stats, error)
	Running(context.Context) ([]scheduler.Run, error)
	Waiting(context.Context) ([]scheduler.Wait, error)
	Tree(context.Context, coppice.TreeQuery) (coppice.Tree, error)
	HitRates(ctx context.Context, capacityTokens []int) ([]float64, error)
}

var _ Source = (*coppice.Node)(nil)

// Texts returns a function for Config.Text that decodes tokens. Invalid UTF-8, most often at
// either end of a run, becomes U+FFFD. It returns nil if tok is nil.
func Texts(tok *tokenizer.Tokenizer) func([]kv.Token) string {
	if tok == nil {
		return nil
	}
	var buf []byte
	return func(tokens []kv.Token) string {
		buf = tok.Decode(buf[:0], tokens, false)
		return strings.ToValidUTF8(string(buf), "\uFFFD")
	}
}
