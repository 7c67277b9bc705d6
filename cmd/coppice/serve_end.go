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

// nodeFailed is the error of a command whose node ended by itself.
type nodeFailed struct{ cause error }

func (e *nodeFailed) Error() string { return "the node has failed: " + e.cause.Error() }

// Unwrap gives the cause.
func (e *nodeFailed) Unwrap() error { return e.cause }

// closeNode closes a node, and tells apart that it had failed before.
func closeNode(node *coppice.Node) error {
	cause := node.Err()
	err := node.Close()
	if cause != nil {
		return &nodeFailed{cause}
	}
	return err
}

// serve answers until a signal, and then as long as the drain lets it; or, when the node
// fails, for the grace period.
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
	w.Leave() // before requests are refused
	return errors.Join(drain(srv, c.Drain, signals, log), <-ended)
}

// refuse has the server of a dead node answer, which is 503 and why, until the grace period
// is over or a signal comes.
func refuse(srv *server.Server, grace time.Duration, signals <-chan os.Signal) error {
	over := time.NewTimer(grace)
	defer over.Stop()
	select {
	case <-over.C:
	case <-signals:
	}
	return drain(srv, lastAnswers, signals, zap.NewNop())
}

// lastAnswers is how long the endings of a dead node's requests may take to reach their clients.
const lastAnswers = time.Second

// errPoison is what a simulated device is lost with under --sim-poison.
var errPoison = errors.New("a prompt has the token of --sim-poison")

// poison loses a simulated device in a batch that is given the token.
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
