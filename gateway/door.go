package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// door lets requests in, and is closed once.
type door struct {
	mu       sync.Mutex
	open     int // requests that are in
	draining bool
	idle     chan struct{} // closed when it drains and no request is in

	over   context.Context // ends what has no more time
	finish context.CancelCauseFunc
}

// enter lets a request in, of most at a time.
func (d *door) enter(most int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.draining:
		return errDraining
	case d.open >= most:
		return errTooMany
	}
	d.open++
	return nil
}

func (d *door) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open--; d.open == 0 && d.draining {
		close(d.idle)
	}
}

// drain lets no more requests in.
func (d *door) drain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.draining {
		if d.draining = true; d.open == 0 {
			close(d.idle)
		}
	}
}

// state is how many requests are in, and whether no more may come.
func (d *door) state() (open int, draining bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open, d.draining
}

// Draining reports whether Shutdown or Close has been called.
func (g *Gateway) Draining() bool {
	_, draining := g.door.state()
	return draining
}

// loops reports whether a request has come through this gateway before.
func (g *Gateway) loops(r *http.Request) bool {
	// A proxy on the way may have made one line of all.
	return slices.ContainsFunc(r.Header.Values("Via"), func(line string) bool { return strings.Contains(line, g.via) })
}

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
	g.door.drain()
	var err error
	select {
	case <-g.door.idle:
	case <-ctx.Done():
		err = context.Cause(ctx)
		g.door.finish(errDrained)
		words := time.NewTimer(lastWords)
		defer words.Stop()
		select {
		case <-g.door.idle:
		case <-words.C: // their clients do not even read
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastBytes)
	defer cancel()
	g.http.Shutdown(last) // what it complains of is closed next
	return errors.Join(err, g.Close())
}

// Close ends all requests and connections at once, and returns when nothing runs any
// more but answers that their clients do not take. It may be called again.
func (g *Gateway) Close() error {
	g.door.drain()
	g.door.finish(errDrained)
	err := g.http.Close()
	if g.peers != nil {
		err = errors.Join(err, g.peers.Close())
	}
	err = errors.Join(err, g.members.Close())
	g.clock.Wait()
	g.transport.CloseIdleConnections()
	return err
}
