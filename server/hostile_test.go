package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine/sim"
)

// raw sends bytes on a new connection and returns all that the server answers until it closes the
// connection.
func (b *bed) raw(text string) string {
	b.Helper()
	conn, err := net.Dial("tcp", b.address)
	b.ok(err)
	defer conn.Close()
	io.WriteString(conn, text) // the server may close before the end
	got, _ := io.ReadAll(conn)
	return string(got)
}

// answered is raw, repeated until there is an answer: a spare connection is closed after two
// seconds, even if the machine was too busy to answer on it.
func (b *bed) answered(text string) (got string) {
	b.Helper()
	for got == "" {
		got = b.raw(text)
	}
	return got
}

func post(length int, body string) string {
	return fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", length, body)
}

// TestHostile: bytes that no honest client sends end with an error status or a closed
// connection.
func TestHostile(t *testing.T) {
	t.Parallel()
	// The short time applies only to attacks that must exceed it.
	const short = 50 * time.Millisecond
	limits := Config{MaxBodyBytes: 1 << 16, MaxHeaderBytes: 4096, IdleTimeout: short}
	slowHeader, slowBody := limits, limits
	slowHeader.ReadHeaderTimeout, slowBody.ReadTimeout = 10*short, short
	hostile(start(t, setup{Server: slowHeader}), []attack{
		{"a header that never ends", "GET / HTTP/1.1\r\nHost: localhost\r\nX: ", ""},
		{"nothing", "", ""},
	})
	hostile(start(t, setup{Server: slowBody}), []attack{{"a body that never arrives", post(100, "{"), "408"}})
	ok := `{"prompt":"x","max_tokens":1}`
	hostile(start(t, setup{Server: limits}), []attack{
		{"no HTTP", "\x16\x03\x01\x00\xa5\x01\x00\x00", "400"},
		{"a long header", "GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("a", 1<<16) + "\r\n\r\n", "431"},
		{"a body longer than it may be", post(1<<40, "{"), "413"},
		{"chunks longer than they may be", "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"20000\r\n" + strings.Repeat(" ", 1<<17) + "\r\n0\r\n\r\n", "413"},
		{"broken chunks", "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
		{"two lengths", "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", "400"},
		{"a length and chunks", "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
		{"garbage after a request", post(len(ok), ok) + "\x00\x01garbage\r\n\r\n", "HTTP/1.1 200"},
		{"deep JSON", post(40000, strings.Repeat(`{"a":`, 8000)), "400"},
		{"a method that is none", "BREW /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"},
		{"a path out of the tree", "GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", "307"},
		{"an id that would break a log", "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: a b\"\x80\r\n\r\n", "200"},
	})
}

// attack is a text to send. want is the expected part of the first line of the answer; "" means
// that the server closes the connection without an answer, or answers with a timeout.
type attack struct{ name, send, want string }

// hostile runs all attacks at once, each on its own connection, and checks that nothing remains
// of them.
func hostile(b *bed, all []attack) {
	b.Helper()
	answers := make([]string, len(all))
	var ended sync.WaitGroup
	for i, tc := range all {
		ended.Go(func() { answers[i] = b.raw(tc.send) })
	}
	ended.Wait()
	for i, tc := range all {
		got := answers[i]
		line, _, _ := strings.Cut(got, "\r\n")
		if tc.want == "" && got != "" && !strings.Contains(line, "408") || !strings.Contains(line, tc.want) {
			b.Errorf("%s: %.300q, want %s", tc.name, got, tc.want)
		}
		if strings.Contains(got, "root:") || strings.Contains(got, "a b\"") {
			b.Errorf("%s: %.300q", tc.name, got)
		}
	}
	b.quiet()
	b.until(func(*coppice.Stats) bool { return b.srv.metrics.conns.Load() == 0 })
	if n, m := b.srv.bodies.Load(), b.unused(); n != 0 || m != 0 {
		b.Errorf("%d bytes of bodies and %d of memory are held", n, m)
	}
}

// TestNeverReading: a client that reads nothing is disconnected, and costs little memory until
// then.
func TestNeverReading(t *testing.T) {
	b := start(t, setup{
		Sim:    &sim.Config{Pages: 1 << 16, MaxSlots: 8, MaxRows: 8, MaxPositions: 1 << 20},
		Server: Config{WriteTimeout: 50 * time.Millisecond},
	})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	body := `{"prompt":"x","max_tokens":400000,"ignore_eos":true,"stream":true}`
	var conns []net.Conn
	for range 4 {
		conn, err := net.Dial("tcp", b.address)
		b.ok(err)
		defer conn.Close()
		b.ok(conn.(*net.TCPConn).SetReadBuffer(4096))
		io.WriteString(conn, post(len(body), body))
		conns = append(conns, conn)
	}
	b.until(func(s *coppice.Stats) bool { return s.Scheduler.Endings[coppice.Abort] == uint64(len(conns)) })
	b.quiet()
	b.until(func(*coppice.Stats) bool { return b.srv.metrics.conns.Load() == 0 })
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 64<<20 {
		t.Errorf("%d bytes of heap more", grown)
	}
	a := httptest.NewRecorder() // not a connection, on which the time might be too short
	if b.srv.ServeHTTP(a, httptest.NewRequest("GET", "http://localhost/metrics", nil)); !strings.Contains(a.Body.String(), `coppice_slow_clients_total{model_name="nano"} 4`) {
		t.Errorf("no slow clients in %s", a.Body)
	}
}

// TestBodiesTogether: the total size of bodies is bounded, and released afterwards.
func TestBodiesTogether(t *testing.T) {
	b := start(t, setup{Server: Config{MaxBodyBytes: 1000, MaxBodiesBytes: 1500}})
	half := post(900, strings.Repeat(" ", 800))
	first, err := net.Dial("tcp", b.address)
	b.ok(err)
	defer first.Close()
	io.WriteString(first, half)
	b.until(func(*coppice.Stats) bool { return b.srv.bodies.Load() == 800 })
	body := `{"prompt":"` + strings.Repeat("a", 800) + `","max_tokens":1}`
	a := b.refused("POST", "/v1/completions", body, 503, "server_busy")
	if a.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	first.Close()
	b.until(func(*coppice.Stats) bool { return b.srv.bodies.Load() == 0 })
	b.ask("/v1/completions", body)
}

// TestEchoes: an answer echoes no more text than a body may have, counted per choice, whether
// the prompt was text or ids.
func TestEchoes(t *testing.T) {
	b := start(t, setup{Server: Config{MaxBodyBytes: 4000}})
	text := strings.Repeat("What is light? ", 100)[:1000]
	ids := func(text string) string { return strings.ReplaceAll(fmt.Sprint(b.tok.Encode(nil, text)), " ", ",") }
	for _, tc := range []struct{ prompt, n, more string }{
		{fmt.Sprintf("%q", text), "4", "5"}, {ids(text), "4", "5"}, {"[" + ids(text[:500]) + "," + ids(text[:500]) + "]", "4", "5"},
	} {
		body := `{"max_tokens":1,"ignore_eos":true,"echo":true,"prompt":` + tc.prompt + `,"n":`
		for _, stream := range []string{"", `,"stream":true`} {
			b.refused("POST", "/v1/completions", body+tc.more+stream+"}", 400, "invalid_value")
		}
		for _, c := range b.ask("/v1/completions", body+tc.n+"}").Choices {
			if !strings.HasPrefix(c.Text, text[:500]) {
				t.Errorf("choice %d repeats %q", c.Index, c.Text)
			}
		}
		b.ask("/v1/completions", strings.Replace(body, `"echo":true`, `"return_token_ids":true`, 1)+tc.more+"}")
	}
}

// TestMaxConns: connections beyond the limit wait for their turn.
func TestMaxConns(t *testing.T) {
	b := start(t, setup{Server: Config{MaxConns: 2}})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			got := b.answered("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
			if !strings.HasPrefix(got, "HTTP/1.1 200") {
				t.Errorf("%.100q", got)
			}
			if n := b.srv.metrics.conns.Load(); n > 2 {
				t.Errorf("%d connections", n)
			}
		})
	}
	all.Wait()
}

// TestPipelined: pipelined requests are answered in order.
func TestPipelined(t *testing.T) {
	b := start(t, setup{})
	conn, err := net.Dial("tcp", b.address)
	b.ok(err)
	defer conn.Close()
	ok := `{"prompt":"x","max_tokens":3,"ignore_eos":true}`
	io.WriteString(conn, post(len(ok), ok)+"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"+post(3, "{x}"))
	r := bufio.NewReader(conn)
	for i, want := range []int{200, 200, 400} {
		res, err := http.ReadResponse(r, nil)
		b.ok(err)
		io.Copy(io.Discard, res.Body)
		if res.StatusCode != want {
			t.Errorf("answer %d: %s, want %d", i, res.Status, want)
		}
	}
}
