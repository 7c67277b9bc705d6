package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine/sim"
)

var aborts = flag.Int("aborts", 500, "connections that TestAborted breaks off")

func contextOf(b *bed) (context.Context, context.CancelFunc) { return context.WithCancel(b.Context()) }

func drainBody(res *http.Response) {
	io.Copy(io.Discard, res.Body)
	res.Body.Close()
}

// TestAborted breaks connections off at all stages: nothing of them stays.
func TestAborted(t *testing.T) {
	b := start(t, setup{Sim: &sim.Config{Pages: 4096, MaxSlots: 64, MaxRows: 64}, Node: coppice.Config{MaxRequests: 4096}})
	body := `{"prompt":"What is light?","max_tokens":2000,"ignore_eos":true,"stream":true}`
	before := sockets(t)
	var clients sync.WaitGroup
	for c := range 16 {
		clients.Go(func() {
			for i := c; i < *aborts; i += 16 {
				conn, err := net.Dial("tcp", b.address)
				if err != nil {
					t.Error(err)
					return
				}
				request := fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				switch i % 5 {
				case 0: // within the body
					io.WriteString(conn, request[:len(request)-10])
				case 1: // at once
					io.WriteString(conn, request)
				case 2: // half closed: the client wants to hear, but says that it is done
					io.WriteString(conn, request)
					conn.(*net.TCPConn).CloseWrite()
					io.Copy(io.Discard, conn)
				default: // behind some tokens
					io.WriteString(conn, request)
					r := bufio.NewReader(conn)
					for lines := 0; lines < 8+i%20; {
						line, err := r.ReadSlice('\n')
						if err != nil {
							t.Error(err)
							break
						}
						if bytes.HasPrefix(line, []byte("data: ")) {
							lines++
						}
					}
				}
				conn.Close()
			}
		})
	}
	clients.Wait()
	b.quiet()
	b.until(func(*coppice.Stats) bool { return b.srv.metrics.conns.Load() == 0 })
	if n := b.srv.bodies.Load(); n != 0 {
		t.Errorf("%d bytes of bodies are held", n)
	}
	// Both ends of every connection are closed: net/http closes a descriptor behind
	// the state that it tells of.
	b.until(func(*coppice.Stats) bool { return sockets(t) <= before })
	if st := b.stats(); st.Scheduler.Endings[coppice.Abort] == 0 {
		t.Error("no request was aborted: nothing was tested")
	}
}

// TestDisconnect: a client that leaves within its answer, streamed or not, ends it.
func TestDisconnect(t *testing.T) {
	b := start(t, setup{Sim: slow()})
	for _, stream := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := b.try(ctx, "POST", "/v1/completions", fmt.Sprintf(`{"prompt":["x","y"],"max_tokens":1000,"ignore_eos":true,"stream":%v}`, stream))
			gone <- err
		}()
		b.until(func(s *coppice.Stats) bool { return s.Scheduler.Running == 2 })
		cancel()
		if err := <-gone; err == nil {
			t.Error("it was answered")
		}
		b.quiet()
	}
	if st := b.stats(); st.Scheduler.Endings[coppice.Abort] != 4 {
		t.Errorf("endings %v, want 4 aborts", st.Scheduler.Endings)
	}
	b.client.CloseIdleConnections()
	b.until(func(*coppice.Stats) bool { return b.srv.metrics.conns.Load() == 0 })
	if a := b.do("GET", "/metrics", ""); !strings.Contains(string(a.body), `coppice_http_requests_total{method="POST",model_name="nano",path="/v1/completions",status="499"} 2`) ||
		!strings.Contains(string(a.body), `coppice_client_disconnects_total{model_name="nano"} 2`) {
		t.Errorf("metrics say %s", a.body)
	}
}

// sockets is how many this process has open, where the system tells.
func sockets(t *testing.T) (n int) {
	entries, err := os.ReadDir("/proc/self/fd")
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}
