package server

import (
	"net"
	"sync"
	"sync/atomic"
)

// LimitListener accepts connections of l, at most conns at a time; the next ones wait in the
// kernel's queue. Less than 1 is 1. It bounds what the kernel keeps of answers that are not
// read, too. Serve does this itself; it is for another server in front of this one.
func LimitListener(l net.Listener, conns int) net.Listener {
	return countListener(l, conns, new(atomic.Int64))
}

// countListener is LimitListener that says in open how many connections there are: never
// more than may be, for one that closes is counted off before its place is another's.
func countListener(l net.Listener, conns int, open *atomic.Int64) net.Listener {
	return &limitListener{Listener: l, places: make(chan struct{}, max(conns, 1)), open: open, closed: make(chan struct{})}
}

// limitListener is LimitListener's. A connection holds a place until it is closed.
type limitListener struct {
	net.Listener
	places chan struct{}
	open   *atomic.Int64
	once   sync.Once
	closed chan struct{}
}

// writeBuffer is what the kernel may hold of what a client does not read, in bytes. Left
// to itself it takes megabytes, and it takes as long to find out that nobody reads.
const writeBuffer = 128 << 10

// Accept waits for a place, then for a connection.
func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetWriteBuffer(writeBuffer) // if it can't be set, the default serves
	}
	l.open.Add(1)
	return &limitConn{Conn: conn, from: l}, nil
}

// Close wakes who waits in Accept.
func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// limitConn gives its place back when it is closed.
type limitConn struct {
	net.Conn
	from *limitListener
	once sync.Once
}

func (c *limitConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.from.open.Add(-1)
		<-c.from.places
	})
	return err
}
