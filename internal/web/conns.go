package web

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

type ConnLimits struct {
	Conns int // most usual (not spare) connections at a time; less than 1 means 1
	// Spare is how many more connections are accepted, each for a short time: enough to answer
	// a health check, or to say that there are too many connections. Further ones wait in the
	// kernel's queue.
	Spare int
}

// SpareConns is a reasonable value of ConnLimits.Spare.
const SpareConns = 16

// spareTime is how long a spare connection lasts, so that idle ones do not use up the spares.
const spareTime = 2 * time.Second

// LimitConns returns a listener that accepts connections of l within the bounds of cfg. It also
// bounds the kernel's buffer for data that a client does not read. The listener keeps the number
// of usual connections in open. That number never exceeds cfg.Conns, because a closing
// connection is subtracted before its place is free.
func LimitConns(l net.Listener, cfg ConnLimits, open *atomic.Int64) net.Listener {
	most := max(cfg.Conns, 1)
	return &limitListener{Listener: l, places: make(chan struct{}, most+max(cfg.Spare, 0)), most: int64(most), open: open, closed: make(chan struct{})}
}

// limitListener is the listener of LimitConns. A connection holds a place until it is closed.
type limitListener struct {
	net.Listener
	places chan struct{} // for usual and spare connections
	most   int64         // usual connections
	open   *atomic.Int64
	once   sync.Once
	closed chan struct{}
}

// writeBuffer is the size of the kernel's send buffer, in bytes. By default it grows to
// megabytes, and when a client stops reading, it would take that much longer until writes block.
const writeBuffer = 128 << 10

// Accept waits for a place, and then for a connection.
func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	under, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	if tcp, ok := under.(*net.TCPConn); ok {
		tcp.SetWriteBuffer(writeBuffer) // on failure the default size remains
	}
	c := &conn{Conn: under, from: l}
	if !c.Promote() {
		c.mu.Lock()
		c.end = time.AfterFunc(spareTime, func() { c.Close() })
		c.mu.Unlock()
	}
	return c, nil
}

// enter counts one more usual connection, unless there are as many as may be.
func (l *limitListener) enter() bool {
	for n := l.open.Load(); n < l.most; n = l.open.Load() {
		if l.open.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// Close closes the listener and makes waiting calls of Accept return.
func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// conn is a connection that frees its place when it is closed.
type conn struct {
	net.Conn
	from *limitListener

	mu     sync.Mutex
	usual  bool // not a spare one
	closed bool
	end    *time.Timer // closes a spare connection after spareTime
}

// Promote makes a spare connection a usual one if there may be one more, and reports whether it is
// a usual one now.
func (c *conn) Promote() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && !c.usual && c.from.enter() {
		c.usual = true
		c.stop()
	}
	return c.usual && !c.closed
}

// stop stops the timer of a spare connection. The caller holds mu.
func (c *conn) stop() {
	if c.end != nil {
		c.end.Stop()
	}
}

// Close closes the connection. The first call also frees its place.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return err
	}
	c.closed = true
	c.stop()
	if c.usual {
		c.from.open.Add(-1)
	}
	<-c.from.places
	return err
}

type contextKey struct{}

// ConnContext returns a copy of ctx with the connection nc, for Admitted. Use it as an http.Server's
// ConnContext.
func ConnContext(ctx context.Context, nc net.Conn) context.Context {
	if secure, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = secure.NetConn()
	}
	if c, ok := nc.(*conn); ok {
		return context.WithValue(ctx, contextKey{}, c)
	}
	return ctx
}

// Admitted reports whether a request came over a usual connection, or over a spare one that could
// be promoted now. It is true for connections that are not from Limit.
func Admitted(ctx context.Context) bool {
	c, ok := ctx.Value(contextKey{}).(*conn)
	return !ok || c.Promote()
}
