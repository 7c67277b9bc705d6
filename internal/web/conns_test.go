package web

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fakeListener accepts connections from conns and returns errors from fail.
type fakeListener struct {
	conns  chan net.Conn
	fail   chan error
	once   sync.Once
	closed chan struct{}
}

func newFakeListener() *fakeListener {
	return &fakeListener{conns: make(chan net.Conn), fail: make(chan error, 1), closed: make(chan struct{})}
}

func (l *fakeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case err := <-l.fail:
		return nil, err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *fakeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (l *fakeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// knock makes a connection; it fails once the listener is closed.
func (l *fakeListener) knock() {
	a, b := net.Pipe()
	b.Close()
	select {
	case l.conns <- a:
	case <-l.closed:
	}
}

func TestLimitListener(t *testing.T) {
	for _, tc := range []struct{ conns, most int }{{-1, 1}, {0, 1}, {1, 1}, {2, 2}, {3, 3}} {
		synctest.Test(t, func(t *testing.T) {
			under := newFakeListener()
			var count atomic.Int64
			l := LimitConns(under, ConnLimits{Conns: tc.conns}, &count)
			defer l.Close()
			var open []net.Conn // from Accept; used by its goroutine alone until that waits
			done := make(chan error, 1)
			for range 9 {
				go under.knock()
			}
			under.fail <- errors.New("no descriptors") // it takes no place
			go func() {
				for {
					conn, err := l.Accept()
					if n := count.Load(); n > int64(tc.most) {
						t.Errorf("at most %d, and %d are counted", tc.most, n)
					}
					if errors.Is(err, net.ErrClosed) {
						done <- nil
						return
					}
					if err == nil {
						open = append(open, conn)
					}
				}
			}()
			want := tc.most
			check := func(when string) {
				t.Helper()
				if synctest.Wait(); count.Load() != int64(tc.most) {
					t.Errorf("at most %d: %d are counted %s", tc.conns, count.Load(), when)
				}
				if len(open) != want {
					t.Fatalf("at most %d: %d accepted %s, want %d", tc.conns, len(open), when, want)
				}
			}
			check("at first")
			open[0].Close()
			want++
			check("when one had closed")
			open[0].Close()
			check("when it had closed again")
			for _, conn := range open {
				conn.Close()
			}
			want += tc.most
			check("when all had closed")
			l.Close() // must wake Accept, which waits for a place
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// isClosed reports whether c is closed, which a timer may change concurrently.
func (c *conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// TestSpare checks that a few more than the usual connections are accepted for a while, and that
// they become usual ones when a place is free.
func TestSpare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := newFakeListener()
		var count atomic.Int64
		l := LimitConns(under, ConnLimits{Conns: 1, Spare: 3}, &count)
		defer l.Close()
		accepted := make(chan *conn, 9)
		go func() {
			for {
				nc, err := l.Accept()
				if err != nil {
					return
				}
				accepted <- nc.(*conn)
			}
		}()
		next := func() *conn {
			t.Helper()
			select {
			case c := <-accepted:
				return c
			case <-time.After(time.Millisecond):
				return nil
			}
		}
		for range 3 {
			go under.knock()
		}
		usual, spare, silent := next(), next(), next()
		if !usual.Promote() || spare.Promote() || silent.Promote() || count.Load() != 1 {
			t.Fatalf("%d are counted", count.Load())
		}
		usual.Close()
		if !spare.Promote() || silent.Promote() || count.Load() != 1 {
			t.Errorf("a place came free: %d are counted", count.Load())
		}
		time.Sleep(10 * time.Millisecond)
		for range 3 {
			go under.knock()
		}
		fourth, fifth := next(), next()
		if fourth == nil || fourth.Promote() || fifth == nil || next() != nil {
			t.Error("a spare place came free, and was not taken, or two were")
		}
		time.Sleep(spareTime - 5*time.Millisecond) // the time of silent is over, that of the fourth is not
		synctest.Wait()
		if last := next(); last == nil || !silent.isClosed() || spare.isClosed() || fourth.isClosed() {
			t.Errorf("the time of spare connections is over: %v, closed %v, %v and %v", last, silent.isClosed(), spare.isClosed(), fourth.isClosed())
		}
		if silent.Promote() {
			t.Error("a closed one was promoted")
		}
		spare.Close()
		spare.Close()
		time.Sleep(spareTime)
		synctest.Wait()
		if count.Load() != 0 || len(l.(*limitListener).places) > 1 { // the one that Accept has for the next
			t.Errorf("%d are counted, %d places are taken", count.Load(), len(l.(*limitListener).places))
		}
	})
}
