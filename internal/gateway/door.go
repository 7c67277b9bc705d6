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

// enter lets a request in, or says why not.
func (g *Gateway) enter(r *http.Request) error {
	// A proxy on the way may have made one line of all.
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

// Shutdown takes no more requests, which get status 503, waits for those that are open,
// and ends them when ctx does. Then it closes everything. It returns ctx's error if
// requests had to be ended.
func (g *Gateway) Shutdown(ctx context.Context) error {
	return errors.Join(g.door.Shutdown(ctx, &g.http, errDrained, nil), g.Close())
}

// Close ends all requests and connections at once, and returns when nothing runs any
// more but answers that their clients do not take. It may be called again.
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
