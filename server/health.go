package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/engine"
)

var bodyOK = []byte(`{"status":"ok"}`)

// health answers /health: the process is useful as long as its node runs.
func (c *call) health() error {
	if err := c.s.alive(c.r.Context()); err != nil {
		return err
	}
	return c.json(http.StatusOK, bodyOK)
}

// ready answers /ready: new requests are welcome unless the server drains.
func (c *call) ready() error {
	if c.s.Draining() {
		return errDraining
	}
	return c.health()
}

// aliveTimeout is how long alive waits for the node's answer. A node that does not answer in
// time counts as alive: it is in a long step.
const aliveTimeout = 500 * time.Millisecond

// errLost is the answer once the node has ended by itself.
var errLost = conversation.NewError(http.StatusServiceUnavailable, "device_failed", "the device or its driver has failed, and the server must be restarted; its log has the cause")

// alive returns an error if the node has ended.
func (s *Server) alive(ctx context.Context) error {
	if s.failed.Load() != nil {
		return errLost
	}
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	if _, err := s.cfg.Node.Running(ctx); err != nil && ctx.Err() == nil {
		return s.fails(err)
	}
	return nil
}

// fails records, once, why the node has ended.
func (s *Server) fails(err error) *conversation.Error {
	if s.failed.CompareAndSwap(nil, &err) {
		s.log.Error("node has ended", zap.Error(err))
	}
	return errLost
}

// lost returns errLost if err, of a request, was caused by the end of the node, else nil.
func (s *Server) lost(err error) *conversation.Error {
	device := (*engine.Error)(nil)
	if errors.As(err, &device) {
		return s.fails(err)
	}
	if errorOf(err).Status == http.StatusInternalServerError && s.alive(context.Background()) != nil {
		return errLost
	}
	return nil
}
