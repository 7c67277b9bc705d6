package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/internal/web"
)

// Draining reports whether Shutdown or Close has been called.
func (g *Gateway) Draining() bool { return g.door.Draining() }

// enter admits a request, or returns the reason to refuse it: the gateway is shutting down, too
// many requests are open, or the request has passed this gateway before. An admitted request
// must call g.door.Leave.
func (g *Gateway) enter(r *http.Request) error {
	// A proxy in between may have joined several Via headers into one line.
	if slices.ContainsFunc(r.Header.Values("Via"), func(line string) bool { return strings.Contains(line, g.via) }) {
		return errLoop
	}
	switch g.door.Enter() {
	case web.ErrDraining:
		return errDraining
	case web.ErrFull:
		return errTooMany
	}
	return nil
}

// Serve answers on l until Shutdown or Close, then returns nil. It closes l.
func (g *Gateway) Serve(l net.Listener) error { return web.Serve(&g.http, l) }

// Shutdown refuses new requests with status 503 and waits for the open ones. When ctx ends, it
// ends the open requests. Then it closes everything. It returns ctx's error if requests had to
// be ended.
func (g *Gateway) Shutdown(ctx context.Context) error {
	return errors.Join(g.door.Shutdown(ctx, &g.http, errDrained, nil), g.Close())
}

// Close ends all requests and connections at once. When it returns, only answers that clients do
// not read may still be running. It may be called again.
func (g *Gateway) Close() error {
	g.door.Finish(errDrained)
	err := g.http.Close()
	if g.peers != nil {
		err = errors.Join(err, g.peers.Close())
	}
	err = errors.Join(err, g.members.Close())
	g.clock.Wait()
	g.transport.CloseIdleConnections()
	return err
}
