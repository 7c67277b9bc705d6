package main

import (
	"errors"
	"net"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/fleet"
	"github.com/coppice-llm/coppice/server"
)

// exitFailed is the exit status of a process whose node has failed.
const exitFailed = 3

// nodeFailed is the error of a command whose node failed; main exits with exitFailed.
type nodeFailed struct{ cause error }

func (e *nodeFailed) Error() string { return "the node has failed: " + e.cause.Error() }

// Unwrap returns the cause.
func (e *nodeFailed) Unwrap() error { return e.cause }

// closeNode closes a node. If the node had failed before, the error is a nodeFailed.
func closeNode(node *coppice.Node) error {
	cause := node.Err()
	err := node.Close()
	if cause != nil {
		return &nodeFailed{cause}
	}
	return err
}

// serve answers requests on l until a signal arrives, and then drains. If the node fails, it
// refuses requests for the grace period instead. In both cases the worker w first leaves its
// fleet.
func (c *serveCmd) serve(srv *server.Server, l net.Listener, node *coppice.Node, w *fleet.Worker, signals <-chan os.Signal, log *zap.Logger) error {
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		return errors.Join(err, srv.Close())
	case <-node.Done():
		log.Error("the node has failed", zap.Error(node.Err()), zap.Duration("grace", c.FailedGrace), zap.Int("status", exitFailed))
		w.Leave()
		return errors.Join(refuse(srv, c.FailedGrace, signals), <-ended)
	case s := <-signals:
		log.Info("draining", zap.Stringer("signal", s), zap.Duration("limit", c.Drain))
	}
	w.Leave() // routers must know before requests are refused
	return errors.Join(drain(srv, c.Drain, signals, log), <-ended)
}

// refuse keeps the server of a failed node running until the grace period is over or a signal
// arrives; meanwhile the server answers 503 with the cause. Then refuse shuts the server down.
func refuse(srv *server.Server, grace time.Duration, signals <-chan os.Signal) error {
	select {
	case <-time.After(grace):
	case <-signals:
	}
	return drain(srv, lastAnswers, signals, zap.NewNop())
}

// lastAnswers is the time for the endings of a failed node's requests to reach their
// clients.
const lastAnswers = time.Second

// errPoison is the error with which a simulated device fails under --sim-poison.
var errPoison = errors.New("a prompt has the token of --sim-poison")

// poison returns a hook that makes a simulated device fail on a batch with this token; nil
// for a negative token.
func poison(token int) func(b *engine.Batch) error {
	if token < 0 {
		return nil
	}
	return func(b *engine.Batch) error {
		for i := range b.Rows {
			for _, t := range b.Rows[i].Tokens {
				if int64(t) == int64(token) {
					return errPoison
				}
			}
		}
		return nil
	}
}
