package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/gateway"
)

// otherMake is a worker that is not coppice serve. Its answers have a first event, and a
// last one after a receive from goOn.
type otherMake struct {
	*httptest.Server
	goOn chan struct{}
}

func newOtherMake(t *testing.T) *otherMake {
	t.Helper()
	w := &otherMake{goOn: make(chan struct{})}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"data": [{"id": "m", "max_model_len": 1000}]}`)
	})
	routes.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	routes.HandleFunc("POST /v1/completions", func(out http.ResponseWriter, r *http.Request) {
		out.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(out, "data: {\"first\":1}\n\n")
		out.(http.Flusher).Flush()
		select {
		case <-w.goOn:
			io.WriteString(out, "data: {\"last\":1}\n\ndata: [DONE]\n\n")
		case <-r.Context().Done():
		}
	})
	w.Server = httptest.NewServer(routes)
	t.Cleanup(func() {
		w.CloseClientConnections()
		w.Close()
	})
	return w
}

// states returns the states of the workers by URL, from the router.
func states(p *process) map[string]string {
	p.Helper()
	var s gateway.FleetStatus
	p.document("/v1/fleet", &s)
	all := map[string]string{}
	for _, w := range s.Workers {
		all[w.URL] = w.State
	}
	return all
}

func untilFleet(t *testing.T, p *process, want map[string]string) {
	t.Helper()
	until(t, "the fleet", func() string {
		if got := states(p); fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Sprintf("%v, want %v", got, want)
		}
		return ""
	})
}

func (p *process) untilSays(text string) {
	p.Helper()
	until(p.T, p.name+" says "+text, func() string {
		if said := p.said.String(); !strings.Contains(said, text) {
			return said
		}
		return ""
	})
}

// TestRouteWorkersFile checks that workers join and leave by the file, that a bad file changes
// nothing, and that no log message has a stack trace.
func TestRouteWorkersFile(t *testing.T) {
	t.Parallel()
	a, b := newOtherMake(t), newOtherMake(t)
	file := filepath.Join(t.TempDir(), "workers.json")
	put := func(workers ...string) {
		t.Helper()
		for i, w := range workers {
			workers[i] = fmt.Sprintf(`{"url": %q, "events": "none"}`, w)
		}
		writeFile(t, file+".new", `{"workers": [`+strings.Join(workers, ", ")+`]}`)
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	put(a.URL)
	p := startCoppice(t, "router", "route", "--addr", "127.0.0.1:0", "--workers-file", file, "--probe-every", "20ms", "--log-format", "json")
	untilFleet(t, p, map[string]string{a.URL: "healthy"})
	put(a.URL, b.URL)
	untilFleet(t, p, map[string]string{a.URL: "healthy", b.URL: "healthy"})
	writeFile(t, file, "")
	p.untilSays("it is empty")
	untilFleet(t, p, map[string]string{a.URL: "healthy", b.URL: "healthy"})
	put(b.URL)
	untilFleet(t, p, map[string]string{b.URL: "healthy"})
	b.CloseClientConnections()
	b.Close()
	untilFleet(t, p, map[string]string{b.URL: "lost"})
	p.stop()
	said := p.said.String()
	if !strings.Contains(said, `"msg":"worker lost"`) || strings.Contains(said, "stacktrace") || strings.Contains(said, ".go:") || strings.Count(said, "not loaded") != 1 {
		t.Errorf("the log: %s", said)
	}
}

// TestRouteWatchesFromWhatItHas checks that a change between the first reading and the start of
// the watch is applied.
func TestRouteWatchesFromWhatItHas(t *testing.T) {
	t.Parallel()
	w := newOtherMake(t)
	c := &routeCmd{WorkersFile: filepath.Join(t.TempDir(), "workers.json")}
	writeFile(t, c.WorkersFile, fmt.Sprintf(`{"workers": [{"url": %q}]}`, w.URL))
	g, err := gateway.New(gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		c.watchedWorkers([]byte(`{"workers": []}`), g).run(ctx, zap.NewNop())
	}()
	defer func() { cancel(); <-watched }()
	until(t, "the worker", func() string {
		r := httptest.NewRecorder()
		if g.ServeHTTP(r, httptest.NewRequest("GET", "http://localhost/v1/fleet", nil)); !strings.Contains(r.Body.String(), w.URL) {
			return r.Body.String()
		}
		return ""
	})
}

// TestRouteEnds checks that SIGTERM lets an answer end, and that a second SIGTERM ends it with
// an error. Meanwhile the only worker is busy, and with --queue-timeout 0 no request waits.
func TestRouteEnds(t *testing.T) {
	t.Parallel()
	for _, signals := range []int{1, 2} {
		t.Run(fmt.Sprint(signals, " signals"), func(t *testing.T) {
			w := newOtherMake(t)
			file := filepath.Join(t.TempDir(), "workers.json")
			writeFile(t, file, fmt.Sprintf(`{"workers": [{"url": %q, "max_running": 1}]}`, w.URL))
			p := startCoppice(t, "router", "route", "--addr", "127.0.0.1:0", "--workers-file", file, "--queue-timeout", "0", "--drain", "1h")
			untilFleet(t, p, map[string]string{w.URL: "healthy"})
			const body = `{"model": "m", "prompt": "x", "stream": true}`
			res, err := asker.Post(p.url+"/v1/completions", "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			stream := bufio.NewReader(res.Body)
			if line, err := stream.ReadString('\n'); err != nil || !strings.Contains(line, "first") {
				t.Fatalf("%s: %q, %v", res.Status, line, err)
			}
			other, err := asker.Post(p.url+"/v1/completions", "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			told, _ := io.ReadAll(other.Body)
			if other.Body.Close(); other.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(told), "workers_busy") {
				t.Errorf("with all busy: %s %s", other.Status, told)
			}
			p.signal(syscall.SIGTERM)
			p.untilSays("draining")
			if signals > 1 {
				p.signal(syscall.SIGTERM)
				p.untilSays("ending at once")
			} else {
				close(w.goOn)
			}
			rest, err := io.ReadAll(stream)
			want := `"last"`
			if signals > 1 {
				want = "shutting_down"
			}
			if err != nil || !strings.Contains(string(rest), want) {
				t.Errorf("the rest is %q, %v", rest, err)
			}
			p.wait()
		})
	}
}

// TestRouteMaxConns checks that on a connection above the limit /health is answered and every
// other request refused, until another connection is closed.
func TestRouteMaxConns(t *testing.T) {
	t.Parallel()
	p := startCoppice(t, "router", "route", "--addr", "127.0.0.1:0", "--worker", "http://127.0.0.1:1", "--max-conns", "1")
	dial := func() (net.Conn, *bufio.Reader) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn, bufio.NewReader(conn)
	}
	ask := func(conn net.Conn, from *bufio.Reader, path string) (status int, err error) {
		if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			return 0, err
		}
		res, err := http.ReadResponse(from, nil)
		if err != nil {
			return 0, err
		}
		defer res.Body.Close()
		io.Copy(io.Discard, res.Body)
		return res.StatusCode, nil
	}
	first, reader := dial()
	if got, err := ask(first, reader, "/v1/fleet"); got != 200 {
		t.Fatal(got, err)
	}
	for range 40 {
		for path, want := range map[string]int{"/health": 200, "/v1/fleet": 503, "/nothing": 503} {
			until(t, path, func() string {
				conn, from := dial()
				got, err := ask(conn, from, path)
				if err != nil { // closed before the answer, as it was open for two seconds
					return err.Error()
				}
				if _, err := from.ReadByte(); got != want || err != io.EOF {
					t.Fatalf("%s over one too many: %d, want %d, and then its end: %v", path, got, want, err)
				}
				return ""
			})
		}
	}
	first.Close()
	until(t, "the router has noticed the close", func() string {
		conn, from := dial()
		if got, err := ask(conn, from, "/v1/fleet"); got != 200 {
			return fmt.Sprint(got, err)
		}
		return ""
	})
}
