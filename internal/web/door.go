package web

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// Reasons for Enter to refuse a request.
var (
	ErrDraining = errors.New("the server is shutting down")
	ErrFull     = errors.New("as many requests are open as may be")
)

// Door admits requests until it is drained. All its methods may be called from any goroutine.
type Door struct {
	most   int // limit of open requests; 0: none
	over   context.Context
	finish context.CancelCauseFunc

	mu       sync.Mutex
	open     int // open requests
	draining bool
	idle     chan struct{} // closed when draining and no request is open
}

// NewDoor returns a Door that admits requests as long as fewer than most are open; with most 0,
// any number.
func NewDoor(most int) *Door {
	d := &Door{most: most, idle: make(chan struct{})}
	d.over, d.finish = context.WithCancelCause(context.Background())
	return d
}

// Enter admits a request until Leave, or returns [ErrDraining] or [ErrFull].
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

// Leave ends a request admitted by Enter.
func (d *Door) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open--; d.open == 0 && d.draining {
		close(d.idle)
	}
}

// drain stops admitting requests.
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

// Draining reports whether requests are refused because of a shutdown.
func (d *Door) Draining() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.draining
}

// Open returns the number of open requests.
func (d *Door) Open() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

// Over returns a context that ends when open requests must end. Its cause is the reason.
func (d *Door) Over() context.Context { return d.over }

// Bound returns a context that ends with ctx or with Over. The caller must call the function at
// the end of the request.
func (d *Door) Bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.over, func() { cancel(context.Cause(d.over)) })
	return ctx, func() { stop(); cancel(nil) }
}

// Finish ends the open requests with the error why and admits no more.
func (d *Door) Finish(why error) {
	d.drain()
	d.finish(why)
}

// lastWords is the time for ended requests to send their error, lastBytes the time for
// connections to send what is buffered.
const lastWords, lastBytes = 5 * time.Second, time.Second

// Shutdown refuses new requests and waits for the open ones. If ctx ends first, it ends them
// with the error why. Then it calls before, if not nil, and shuts s down; connections that do
// not become idle in time are left to the caller. It returns ctx's error if requests had to be
// ended.
func (d *Door) Shutdown(ctx context.Context, s *http.Server, why error, before func()) (err error) {
	d.drain()
	select {
	case <-d.idle:
	case <-ctx.Done():
	}
	select {
	case <-d.idle: // also if both are ready
	default:
		err = context.Cause(ctx)
		d.Finish(why)
		words := time.NewTimer(lastWords)
		defer words.Stop()
		select {
		case <-d.idle:
		case <-words.C: // their clients do not read
		}
	}
	d.Finish(why)
	if before != nil {
		before()
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastBytes)
	defer cancel()
	s.Shutdown(last) // the caller closes the remaining connections
	return err
}

// Serve runs s on l until it is shut down or closed, then returns nil. It closes l.
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
