//go:build unix

package e2e

import (
	"io"
	"net"
	"sync"
	"testing"
)

// relay passes TCP connections on to another port, until they are cut. It stands between a
// publisher and the gateway, so that a test can lose events that the publisher has sent.
type relay struct {
	port int

	mu    sync.Mutex
	apart bool
	conns map[net.Conn]bool
}

// newRelay listens on a free port, for connections to target. It ends with the test.
func newRelay(t *testing.T, target string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{port: l.Addr().(*net.TCPAddr).Port, conns: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { r.pass(in, target) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		r.cut()
		all.Wait()
	})
	return r
}

// pass copies both directions of one connection until one of them ends.
func (r *relay) pass(in net.Conn, target string) {
	defer r.drop(in)
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer r.drop(out)
	if !r.keep(in, out) {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(out, in)
		out.Close()
	}()
	io.Copy(in, out)
	in.Close()
	<-done
}

// keep registers connections, and returns false if connections are cut.
func (r *relay) keep(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		r.conns[c] = true
	}
	return !r.apart
}

func (r *relay) drop(c net.Conn) {
	c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

// cut ends all connections, and every later one, until mend.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.apart = true
	for c := range r.conns {
		c.Close()
	}
}

// mend passes later connections on again.
func (r *relay) mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.apart = false
}
