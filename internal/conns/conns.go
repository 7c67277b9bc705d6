package conns

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Config says how many connections there may be.
type Config struct {
	Conns int // at a time; less than 1 is 1
	// Spare are accepted beside them, each for a short time: enough to be told how the
	// server is, or that it has too many connections. Beyond them connections wait in the
	// kernel's queue.
	Spare int
}

// Spare is a good number for Config.Spare.
const Spare = 16

// spareTime is how long a spare connection lasts, so that silent ones keep nobody out.
const spareTime = 2 * time.Second

// Limit accepts connections of l within cfg. It bounds what the kernel keeps of answers that
// are not read, too. open says how many of the usual connections there are: never more than
// may be, for one that closes is counted off before its place is another's.
func Limit(l net.Listener, cfg Config, open *atomic.Int64) net.Listener {
	return &listener{
		Listener: l, places: make(chan struct{}, max(cfg.Conns, 1)), spares: make(chan struct{}, max(cfg.Spare, 0)),
		open: open, closed: make(chan struct{}),
	}
}

// listener is Limit's. A connection holds a place, or a spare one, until it is closed.
type listener struct {
	net.Listener
	places chan struct{}
	spares chan struct{}
	open   *atomic.Int64
	once   sync.Once
	closed chan struct{}
}

// writeBuffer is what the kernel may hold of what a client does not read, in bytes. Left
// to itself it takes megabytes, and it takes as long to find out that nobody reads.
const writeBuffer = 128 << 10

// Accept waits for a place, usual or spare, then for a connection.
func (l *listener) Accept() (net.Conn, error) {
	c := &conn{from: l}
	if !c.promote() {
		select {
		case l.places <- struct{}{}:
			c.placed = true
		case l.spares <- struct{}{}:
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
	under, err := l.Listener.Accept()
	if err != nil {
		c.leave()
		return nil, err
	}
	if tcp, ok := under.(*net.TCPConn); ok {
		tcp.SetWriteBuffer(writeBuffer) // if it can't be set, the default serves
	}
	c.Conn = under
	if c.placed {
		l.open.Add(1)
		c.counted = true
	} else if !c.Promote() { // a place may have come free since
		c.mu.Lock()
		c.end = time.AfterFunc(spareTime, func() { c.Close() })
		c.mu.Unlock()
	}
	return c, nil
}

// Close wakes whoever waits in Accept.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// conn gives its place back when it is closed.
type conn struct {
	net.Conn
	from *listener

	mu      sync.Mutex
	placed  bool // it holds a usual place, else a spare one
	counted bool // in from.open
	closed  bool
	end     *time.Timer // of a spare one
}

// promote takes a usual place if one is free; the caller holds mu or is the only one to know c.
func (c *conn) promote() bool {
	if !c.placed {
		select {
		case c.from.places <- struct{}{}:
			c.placed = true
		default:
		}
	}
	return c.placed
}

// Promote makes a spare connection a usual one if there is a place now, and reports whether
// it is one.
func (c *conn) Promote() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return false
	case c.placed:
		return true
	case !c.promote():
		return false
	}
	<-c.from.spares
	c.from.open.Add(1)
	c.counted = true
	if c.end != nil {
		c.end.Stop()
	}
	return true
}

// leave gives the place back.
func (c *conn) leave() {
	if c.counted {
		c.from.open.Add(-1)
	}
	if c.placed {
		<-c.from.places
	} else {
		<-c.from.spares
	}
}

// Close closes the connection. Called again, it changes nothing.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		if c.end != nil {
			c.end.Stop()
		}
		c.leave()
	}
	return err
}

type contextKey struct{}

// Context is an http.Server's ConnContext, for Admitted.
func Context(ctx context.Context, nc net.Conn) context.Context {
	if secure, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = secure.NetConn()
	}
	if c, ok := nc.(*conn); ok {
		return context.WithValue(ctx, contextKey{}, c)
	}
	return ctx
}

// Admitted reports whether a request came over a usual connection, or over one that could
// be made one now. It is true of connections that are not of Limit.
func Admitted(ctx context.Context) bool {
	c, ok := ctx.Value(contextKey{}).(*conn)
	return !ok || c.Promote()
}
