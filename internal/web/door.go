package web

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// The reasons why Enter lets a request not in.
var (
	ErrDraining = errors.New("the server is shutting down")
	ErrFull     = errors.New("as many requests are open as may be")
)

// Door lets requests in until it is drained. All its methods may be called from any goroutine.
type Door struct {
	most   int // requests that may be in; 0: no limit
	over   context.Context
	finish context.CancelCauseFunc

	mu       sync.Mutex
	open     int // requests that are in
	draining bool
	idle     chan struct{} // closed when it drains and no request is in
}

// NewDoor is an open door for most requests at a time; 0: any number.
func NewDoor(most int) *Door {
	d := &Door{most: most, idle: make(chan struct{})}
	d.over, d.finish = context.WithCancelCause(context.Background())
	return d
}

// Enter lets a request in, until Leave, or returns [ErrDraining] or [ErrFull].
func (d *Door) Enter() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.draining:
		return ErrDraining
	case d.most > 0 && d.open >= d.most:
		return ErrFull
	}
	d.open++
	return nil
}

// Leave ends an Enter.
func (d *Door) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open--; d.open == 0 && d.draining {
		close(d.idle)
	}
}

// drain lets no more requests in.
func (d *Door) drain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining {
		return
	}
	if d.draining = true; d.open == 0 {
		close(d.idle)
	}
}

// Draining reports whether no more requests are let in.
func (d *Door) Draining() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.draining
}

// Open is how many requests are in.
func (d *Door) Open() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

// Over ends when requests have no more time. Its cause is the reason.
func (d *Door) Over() context.Context { return d.over }

// Bound is ctx, which ends too when requests have no more time. The caller calls the function
// when the request is over.
func (d *Door) Bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.over, func() { cancel(context.Cause(d.over)) })
	return ctx, func() { stop(); cancel(nil) }
}

// Finish ends the requests that are in, and lets no more in.
func (d *Door) Finish(why error) {
	d.drain()
	d.finish(why)
}

// lastWords is how long requests that were ended may take to say so, and lastBytes how long
// connections may take that have something on its way.
const lastWords, lastBytes = 5 * time.Second, time.Second

// Shutdown lets no more requests in, waits for those that are, and ends them for the reason why
// when ctx ends. Then it calls before, if there is one, and ends s, but for connections that do
// not end by themselves. It returns ctx's error if requests had to be ended.
func (d *Door) Shutdown(ctx context.Context, s *http.Server, why error, before func()) (err error) {
	d.drain()
	select {
	case <-d.idle:
	case <-ctx.Done():
	}
	select {
	case <-d.idle: // even if ctx has ended too
	default:
		err = context.Cause(ctx)
		d.Finish(why)
		words := time.NewTimer(lastWords)
		defer words.Stop()
		select {
		case <-d.idle:
		case <-words.C: // their clients do not even read
		}
	}
	d.Finish(why)
	if before != nil {
		before()
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastBytes)
	defer cancel()
	s.Shutdown(last) // what it complains of the caller closes next
	return err
}

// Serve has s answer on l until it is shut down or closed, then returns nil. It closes l.
func Serve(s *http.Server, l net.Listener) (err error) {
	if s.TLSConfig != nil {
		err = s.ServeTLS(l, "", "")
	} else {
		err = s.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
