package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/openai"
)

var bodyOK = []byte(`{"status":"ok"}`)

// health says whether the process can still be of use: the node lives.
func (c *call) health() error {
	if err := c.s.alive(c.r.Context()); err != nil {
		return err
	}
	return c.json(http.StatusOK, bodyOK)
}

// ready says whether requests are welcome.
func (c *call) ready() error {
	if c.s.Draining() {
		return errDraining
	}
	return c.health()
}

// mostPatience is how long a node may take to say that it lives. One that does not in
// time is at a long step.
const mostPatience = 500 * time.Millisecond

// errLost is what is told of a node that has ended by itself.
var errLost = openai.NewError(http.StatusServiceUnavailable, "device_failed", "the device or what drives it has failed, and the server must be started anew; its log says why")

// alive tells whether the node runs.
func (s *Server) alive(ctx context.Context) error {
	if s.failed.Load() != nil {
		return errLost
	}
	ctx, cancel := context.WithTimeout(ctx, mostPatience)
	defer cancel()
	if _, err := s.cfg.Node.Running(ctx); err != nil && ctx.Err() == nil {
		return s.fails(err)
	}
	return nil
}

// fails notes, once, why the node has ended.
func (s *Server) fails(err error) *openai.Error {
	if s.failed.CompareAndSwap(nil, &err) {
		s.log.Error("node has ended", zap.Error(err))
	}
	return errLost
}

// lost tells whether err, of a request, is one of a node that has ended. If not it is nil.
func (s *Server) lost(err error) *openai.Error {
	device := (*engine.Error)(nil)
	if errors.As(err, &device) {
		return s.fails(err)
	}
	if errorOf(err).Status == http.StatusInternalServerError && s.alive(context.Background()) != nil {
		return errLost
	}
	return nil
}
