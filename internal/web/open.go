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

// OpenRequests admits requests until it is drained, and counts those that are open. All its methods
// may be called from any goroutine.
type OpenRequests struct {
	most   int // limit of open requests; 0: none
	over   context.Context
	finish context.CancelCauseFunc

	mu       sync.Mutex
	n        int // open requests
	draining bool
	idle     chan struct{} // closed when draining and no request is open
}

// NewOpenRequests returns OpenRequests that admits requests as long as fewer than most are open; with
// most 0, any number.
func NewOpenRequests(most int) *OpenRequests {
	o := &OpenRequests{most: most, idle: make(chan struct{})}
	o.over, o.finish = context.WithCancelCause(context.Background())
	return o
}

// Enter admits a request until Leave, or returns [ErrDraining] or [ErrFull].
func (o *OpenRequests) Enter() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.draining:
		return ErrDraining
	case o.most > 0 && o.n >= o.most:
		return ErrFull
	}
	o.n++
	return nil
}

// Leave ends a request admitted by Enter.
func (o *OpenRequests) Leave() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n--; o.n == 0 && o.draining {
		close(o.idle)
	}
}

// drain stops admitting requests.
func (o *OpenRequests) drain() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.draining {
		return
	}
	if o.draining = true; o.n == 0 {
		close(o.idle)
	}
}

// Draining reports whether requests are refused because of a shutdown.
func (o *OpenRequests) Draining() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.draining
}

// Count returns the number of open requests.
func (o *OpenRequests) Count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n
}

// Over returns a context that ends when open requests must end. Its cause is the reason.
func (o *OpenRequests) Over() context.Context { return o.over }

// Bound returns a context that ends with ctx or with Over. The caller must call the function at
// the end of the request.
func (o *OpenRequests) Bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(o.over, func() { cancel(context.Cause(o.over)) })
	return ctx, func() { stop(); cancel(nil) }
}

// Finish ends the open requests with the error why and admits no more.
func (o *OpenRequests) Finish(why error) {
	o.drain()
	o.finish(why)
}

// lastWords is the time for ended requests to send their error, lastBytes the time for
// connections to send what is buffered.
const lastWords, lastBytes = 5 * time.Second, time.Second

// Shutdown refuses new requests and waits for the open ones. If ctx ends first, it ends them
// with the error why. Then it calls before, if not nil, and shuts s down; connections that do
// not become idle in time are left to the caller. It returns ctx's error if requests had to be
// ended.
func (o *OpenRequests) Shutdown(ctx context.Context, s *http.Server, why error, before func()) (err error) {
	o.drain()
	select {
	case <-o.idle:
	case <-ctx.Done():
	}
	select {
	case <-o.idle: // also if both are ready
	default:
		err = context.Cause(ctx)
		o.Finish(why)
		words := time.NewTimer(lastWords)
		defer words.Stop()
		select {
		case <-o.idle:
		case <-words.C: // their clients do not read
		}
	}
	o.Finish(why)
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
