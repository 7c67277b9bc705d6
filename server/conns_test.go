package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
)

// TestHealthAlways: while all connections are in use, probes are answered and other requests get
// status 503 at once. A closed connection frees its place.
func TestHealthAlways(t *testing.T) {
	b := start(t, setup{Server: Config{MaxConns: 2}})
	var held []net.Conn
	for range 2 {
		conn, err := net.Dial("tcp", b.address)
		b.ok(err)
		defer conn.Close()
		io.WriteString(conn, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		b.ok(err)
		if res.StatusCode != 200 {
			t.Fatal(res.Status)
		}
		held = append(held, conn)
	}
	for range 100 { // far more than there are spare places
		for path, want := range map[string]string{"/health": "200", "/ready": "200", "/v1/models": "503", "/nothing": "503"} {
			got := b.answered("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n") // reads until the server closes
			if !strings.HasPrefix(got, "HTTP/1.1 "+want) || !strings.Contains(got, "Connection: close") || want == "503" && !strings.Contains(got, "too_many_connections") {
				t.Fatalf("%s: %q, want %s", path, got, want)
			}
		}
	}
	held[0].Close()
	b.until(func(*coppice.Stats) bool { return b.srv.metrics.conns.Load() == 1 })
	if got := b.raw("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("a place is free: %q", got)
	}
}
