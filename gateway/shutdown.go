package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Serve answers on l until Shutdown or Close, then returns nil. It closes l.
func (g *Gateway) Serve(l net.Listener) error {
	var err error
	if g.cfg.TLS != nil {
		err = g.http.ServeTLS(l, "", "")
	} else {
		err = g.http.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// lastWords is how long requests that were ended may take to say so, lastBytes how long
// connections may take that have something on its way.
const lastWords, lastBytes = 5 * time.Second, time.Second

// Shutdown takes no more requests, which get status 503, waits for those that are open,
// and ends them when ctx does. Then it closes everything. It returns ctx's error if
// requests had to be ended.
func (g *Gateway) Shutdown(ctx context.Context) error {
	g.drain()
	var err error
	select {
	case <-g.idle:
	case <-ctx.Done():
		err = context.Cause(ctx)
		g.finish(errDrained)
		words := time.NewTimer(lastWords)
		defer words.Stop()
		select {
		case <-g.idle:
		case <-words.C: // their clients do not even read
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastBytes)
	defer cancel()
	g.http.Shutdown(last) // what it complains of is closed next
	return errors.Join(err, g.Close())
}

// Close ends all requests and connections at once, and returns when nothing runs any
// more but answers that their clients do not take.
func (g *Gateway) Close() error {
	g.drain()
	g.finish(errDrained)
	err := g.http.Close()
	g.mu.Lock()
	g.closed = true
	var all []*member
	for url, m := range g.members {
		delete(g.members, url)
		all = append(all, m)
	}
	g.mu.Unlock()
	g.dismiss(all)
	if g.replicas != nil {
		err = errors.Join(err, g.replicas.close())
	}
	g.stop()
	if g.watcher != nil {
		err = errors.Join(err, g.watcher.Close())
	}
	g.clock.Wait()
	g.subscriber.Close()
	g.transport.CloseIdleConnections()
	return err
}

// drain lets no more requests in.
func (g *Gateway) drain() {
	g.entry.Lock()
	defer g.entry.Unlock()
	if g.draining {
		return
	}
	g.draining = true
	if g.open == 0 {
		close(g.idle)
	}
}

// Draining tells that Shutdown or Close has been called.
func (g *Gateway) Draining() bool {
	g.entry.Lock()
	defer g.entry.Unlock()
	return g.draining
}

// enter lets a request in, or says why not.
func (g *Gateway) enter(r *http.Request) error {
	// A proxy on the way may have made one line of all.
	if slices.ContainsFunc(r.Header.Values("Via"), func(line string) bool { return strings.Contains(line, g.via) }) {
		return errLoop
	}
	g.entry.Lock()
	defer g.entry.Unlock()
	switch {
	case g.draining:
		return errDraining
	case g.open >= g.cfg.MaxOpen:
		return errTooMany
	}
	g.open++
	return nil
}

func (g *Gateway) leave() {
	g.entry.Lock()
	defer g.entry.Unlock()
	if g.open--; g.open == 0 && g.draining {
		close(g.idle)
	}
}
