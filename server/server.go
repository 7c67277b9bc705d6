package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/internal/web"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/server/view"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Server is an OpenAI-compatible server in front of one node. It is an http.Handler and can
// serve listeners itself. Its methods may be called from any goroutine.
type Server struct {
	cfg     Config
	log     *zap.Logger
	keys    *Keyring
	metrics *metrics
	routes  *http.ServeMux
	paths   []Route
	fixed   fixed
	feed    *view.Feed // nil without a page
	http    http.Server
	screen  screen
	pace    pace
	bodies  web.Bodies
	memory  *coppice.Memory // the node's
	renders chan struct{}   // holds an element for each conversation that is rendered
	buffers sync.Pool       // of *[]byte

	failed atomic.Pointer[error] // set once the node has ended: why
	door   *web.Door
}

// fixed holds answers that never change, as JSON.
type fixed struct {
	card     []byte // nil without Config.Card
	document []byte
}

// screen holds the policies that requests are checked against.
type screen struct {
	sites    *web.Sites
	controls *chat.Controls // nil without a tokenizer
	longest  int            // most bytes of a prompt's text; 0: no bound
	tooLong  *openai.Error  // for a longer text
	thinks   bool           // the model may write its reasoning between tags
	reading  openai.Options
}

// Errors of requests that Shutdown or Close ends or refuses.
var (
	errDrained  = openai.NewError(http.StatusServiceUnavailable, "shutting_down", "the server is shutting down and has stopped this request; retry")
	errDraining = openai.NewError(http.StatusServiceUnavailable, "shutting_down", "the server is shutting down and takes no new requests")
)

// Serve answers on l until Shutdown or Close, then returns nil. It closes l.
func (s *Server) Serve(l net.Listener) error {
	l = web.LimitConns(l, web.ConnLimits{Conns: s.cfg.MaxConns, Spare: web.SpareConns}, &s.metrics.conns)
	return web.Serve(&s.http, l)
}

// Shutdown refuses new requests with status 503 and waits for the running ones. If ctx ends
// first, they end with an error that says so. Then it closes listeners and connections. It
// returns nil, or ctx's error if requests had to be ended. The node keeps running.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.door.Shutdown(ctx, &s.http, errDrained, s.closeFeed) // else page streams keep Shutdown waiting
	return errors.Join(err, s.http.Close())
}

// Close ends all requests and closes all connections at once.
func (s *Server) Close() error {
	s.door.Finish(errDrained)
	s.closeFeed()
	return s.http.Close()
}

// Draining reports whether Shutdown or Close has been called.
func (s *Server) Draining() bool { return s.door.Draining() }

// maxKeptBuffer is the largest buffer kept for reuse, in bytes.
const maxKeptBuffer = 64 << 10

// buffer returns an empty buffer. Give it back with release.
func (s *Server) buffer() *[]byte { return s.buffers.Get().(*[]byte) }

// release gives a buffer back, unless it has grown too large.
func (s *Server) release(b *[]byte) {
	if cap(*b) <= maxKeptBuffer {
		*b = (*b)[:0]
		s.buffers.Put(b)
	}
}

func (s *Server) closeFeed() {
	if s.feed != nil {
		s.feed.Close()
	}
}

// Route is a path and its methods.
type Route struct {
	Path    string // as in the OpenAPI document: "/v1/models/{id}"
	Methods []string
}
