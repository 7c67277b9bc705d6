package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/router"
)

// stream answers with server-sent events and lets the test control the rest.
func stream(rw http.ResponseWriter, texts ...string) {
	rw.Header().Set("Content-Type", "text/event-stream")
	for _, text := range texts {
		io.WriteString(rw, text)
		rw.(http.Flusher).Flush()
	}
}

// pipes is a listener without a network, for tests with a fake clock.
type pipes struct {
	net.Listener
	conns chan net.Conn
	once  sync.Once
	ended chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), ended: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.ended) })
	return nil
}

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	a, b := net.Pipe()
	select {
	case p.conns <- a:
		return b, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

// serve runs a handler on the listener until the test ends.
func (p *pipes) serve(t *testing.T, h http.Handler) {
	s := &http.Server{Handler: h}
	go s.Serve(p)
	t.Cleanup(func() { s.Close() })
}

// TestPause: a worker may be silent for longer than a client may read nothing.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // with a fake clock that advances only while all goroutines wait
		const limit = 400 * time.Millisecond
		worker, front := newPipes(), newPipes()
		mux := http.NewServeMux()
		mux.HandleFunc("GET "+card.Path, func(rw http.ResponseWriter, r *http.Request) {
			rw.Write((&card.Card{Name: "a", Models: []string{"m"}, BlockTokens: blockTokens, Epoch: 1}).Append(nil))
		})
		mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
		mux.HandleFunc("POST /v1/completions", func(rw http.ResponseWriter, r *http.Request) {
			stream(rw, "data: 1\n\n")
			time.Sleep(2 * limit) // the pause itself is under test
			stream(rw, "data: [DONE]\n\n")
			if r.URL.RawQuery == "late" {
				time.Sleep(2 * limit)
			}
		})
		worker.serve(t, mux)
		g, err := New(Config{WriteTimeout: limit, Router: router.Config{BlockTokens: blockTokens}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.Close() })
		g.transport.DialContext = worker.dial
		if err := g.SetWorkers([]members.WorkerConfig{{URL: "http://a:1"}}); err != nil {
			t.Fatal(err)
		}
		for g.members.Summary().Ready == 0 {
			time.Sleep(time.Millisecond)
		}
		front.serve(t, g)
		transport := &http.Transport{DialContext: front.dial}
		t.Cleanup(transport.CloseIdleConnections)
		for _, query := range []string{"", "?late"} { // [DONE] may be late
			res, err := (&http.Client{Transport: transport}).Post("http://localhost/v1/completions"+query, "application/json", strings.NewReader(`{"prompt":[1,2,3],"stream":true}`))
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil || string(text) != "data: 1\n\ndata: [DONE]\n\n" {
				t.Errorf("%s: %v %q", query, err, text)
			}
		}
	})
}

// TestCompressed: workers are not asked to compress. If one compresses all the same, its answer
// breaks off unchanged: an added event would be read as compressed bytes.
func TestCompressed(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	const first = "\x1f\x8b as if it were"
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if accept := r.Header.Get("Accept-Encoding"); accept != "" {
			t.Errorf("the worker is asked for %s", accept)
		}
		rw.Header().Set("Content-Encoding", "gzip")
		stream(rw, first)
		panic(http.ErrAbortHandler)
	})
	s := newStand(t, Config{Retries: -1}, a)
	s.ready(1)
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/v1/completions", strings.NewReader(`{"prompt":[1],"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "gzip") // keeps the client from decompressing
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err == nil || string(text) != first {
		t.Errorf("%v %q", err, text)
	}
	s.idle()
}

// TestHalfEvents: a client gets only complete events, however they arrive, and every byte of a
// finished answer.
func TestHalfEvents(t *testing.T) {
	long := "data: " + strings.Repeat("x", 2*maxEvent) + "\n\n"
	for _, tc := range []struct {
		parts []string
		want  string // for an answer that ends
		whole string // for an answer that breaks off
	}{
		{[]string{"data: 1\n\n", "data: {\"a\":"}, "data: 1\n\ndata: {\"a\":", "data: 1\n\n"},
		{[]string{"da", "ta: 1\n", "\ndata: 2", "\n\n"}, "data: 1\n\ndata: 2\n\n", "data: 1\n\ndata: 2\n\n"},
		{[]string{"data: 1\r\n\r", "\ndata: 2\r\n\r\ndata: 3\r\n"}, "data: 1\r\n\r\ndata: 2\r\n\r\ndata: 3\r\n", "data: 1\r\n\r\ndata: 2\r\n\r\n"},
		{[]string{"da", long[2 : len(long)-1], "\nda", "ta: 2\n\n"}, long + "data: 2\n\n", long + "data: 2\n\n"},
	} {
		a := newWorker(t, "a", false, nil)
		s := newStand(t, Config{Retries: -1}, a)
		s.ready(1)
		breaks := false
		a.does(func(rw http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) // otherwise the sent bytes may be lost with the connection
			for _, part := range tc.parts {
				stream(rw, part)
				time.Sleep(time.Millisecond) // to send separate pieces in most runs; the test holds in any case
			}
			if breaks {
				panic(http.ErrAbortHandler)
			}
		})
		if r := s.ask(t.Context(), run(0, 8), `,"stream":true`); r.err != nil || r.text != tc.want {
			t.Errorf("%.60q ends: %v %.200q", tc.parts, r.err, r.text)
		}
		breaks = true
		if r := s.ask(t.Context(), run(0, 8), `,"stream":true`); r.err != nil || !strings.HasPrefix(r.text, tc.whole+"data: {\"error\":") {
			t.Errorf("%.60q breaks: %v %.200q", tc.parts, r.err, r.text)
		}
		s.idle()
	}
}

// TestFrozen: a request at a lost and silent worker ends.
func TestFrozen(t *testing.T) {
	a, b := newWorker(t, "a", true, nil), newWorker(t, "b", true, nil)
	s := newStand(t, Config{}, a, b)
	s.ready(2)
	a.holds(run(0, 4000))
	s.until("the events", func() bool { return s.worker("a").Ranks[0].HeldBlocks == 1000 })
	freeze := func(began bool) {
		a.does(func(rw http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			if began {
				stream(rw, "data: 1\n\n", "data: to be conti")
			}
			<-r.Context().Done()
		})
	}
	ask := func() <-chan reply {
		before, done := a.requests(), make(chan reply, 1)
		go func() { done <- s.ask(t.Context(), run(0, 4000), `,"stream":true,"max_tokens":2`) }()
		s.until("a is asked", func() bool { return a.requests() == before+1 })
		return done
	}
	freeze(false)
	waits := ask()
	freeze(true)
	begun := ask()
	s.until("the first events", func() bool {
		for _, l := range s.dispatch.Loads() {
			if l.Requests == 2 && l.Prefilling == 1 {
				return true
			}
		}
		return false
	})
	a.sick.Store(true)
	s.until("a is lost", func() bool { return s.worker("a").State == "lost" })
	s.patience(0)
	for _, m := range s.members.All() {
		s.heard(m, 0)
		m.Nudge()
	}
	if r := <-waits; r.StatusCode != 200 || r.worker() != "b" || !strings.HasSuffix(r.text, "[DONE]\n\n") {
		t.Errorf("not begun: %s from %q: %s", r.Status, r.worker(), r.text)
	}
	if r := <-begun; r.err != nil || !strings.HasPrefix(r.text, "data: 1\n\ndata: {\"error\":") {
		t.Errorf("begun: %v %q", r.err, r.text)
	}
	s.idle()
}

// TestSlowAnswer: a worker that is lost for a moment, or refused, continues an answer that has
// been silent for long because it is not a stream.
func TestSlowAnswer(t *testing.T) {
	a := newWorker(t, "a", true, nil)
	s := newStand(t, Config{Retries: -1}, a)
	s.ready(1)
	asked, goOn := make(chan struct{}), make(chan struct{})
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		select {
		case <-goOn:
		case <-r.Context().Done():
		}
		io.WriteString(rw, "{}")
	})
	m := s.members.All()[0]
	s.patience(time.Hour)                               // the test may be slow
	for _, state := range []string{"lost", "refused"} { // refused lasts a minute
		a.sick.Store(false)
		s.ready(1)
		done := make(chan reply, 1)
		go func() { done <- s.ask(t.Context(), run(0, 40), ``) }()
		<-asked
		s.heard(m, 0)
		if a.sick.Store(state == "lost"); state == "refused" {
			a.republish(blockTokens + 2)
		}
		s.until(state, func() bool { return s.worker("a").State == state })
		cards := func() int { a.mu.Lock(); defer a.mu.Unlock(); return a.cards }
		before := cards()
		s.until("it is asked again", func() bool { return cards() > before+2 })
		select {
		case goOn <- struct{}{}:
		case r := <-done:
			t.Fatalf("%s: cut: %s %s", state, r.Status, r.text)
		}
		if r := <-done; r.StatusCode != 200 || r.text != "{}" {
			t.Errorf("%s: %s %s", state, r.Status, r.text)
		}
	}
}

// TestBytesAndEvents: without a tokenizer, texts are found by guesses, also at workers whose
// events have tokens.
func TestBytesAndEvents(t *testing.T) {
	a, b := newWorker(t, "a", true, nil), newWorker(t, "b", true, nil)
	s := newStand(t, Config{}, a, b)
	s.ready(2)
	text := strings.Repeat("What is light, and what is it for? ", 100)
	first := ""
	for i := range 5 {
		r := s.post(t.Context(), "/v1/completions", fmt.Sprintf(`{"prompt":%q}`, text))
		if first == "" {
			first = r.worker()
		}
		if r.worker() != first || i > 0 && r.Header.Get(headerOverlap) != r.Header.Get(headerBlocks) {
			t.Errorf("%d: %s from %s, the first from %s, %s of %s blocks", i, r.Status, r.worker(), first, r.Header.Get(headerOverlap), r.Header.Get(headerBlocks))
		}
	}
}

// TestReady: /ready fails when all workers are gone, whether a probe or a request noticed
// first.
func TestReady(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	a.http.Listener.Close()
	a.http.CloseClientConnections()
	s.ask(t.Context(), run(0, 8), ``)
	s.until("not ready", func() bool {
		res, err := http.Get(s.url + "/ready")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode == 503
	})
	s.idle()
}

// TestSwitching: an answer that switches protocols is refused, and its connection closed.
func TestSwitching(t *testing.T) {
	a, b := newWorker(t, "a", false, nil), newWorker(t, "b", false, nil)
	for _, w := range []*worker{a, b} {
		w.does(func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "" {
				t.Error("Upgrade is passed on")
			}
			conn, _, err := rw.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			conn.Close()
		})
	}
	s := newStand(t, Config{}, a, b)
	s.ready(2)
	r, err := http.NewRequest("POST", s.url+"/v1/completions", strings.NewReader(`{"prompt":[1]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "x")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 502 {
		t.Error(res.Status)
	}
	s.idle()
}

// TestImpossibleStatus: a status that can't be forwarded counts as no answer.
func TestImpossibleStatus(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		conn, _, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		io.WriteString(conn, "HTTP/1.1 099 Odd\r\nContent-Length: 2\r\n\r\n{}")
		conn.Close()
	})
	s := newStand(t, Config{}, a)
	s.ready(1)
	if r := s.ask(t.Context(), run(0, 8), ``); r.err != nil || r.StatusCode != 502 {
		t.Errorf("%v %s %s", r.err, r.Status, r.text)
	}
	s.idle()
}

// TestBodies: the memory of a body is reused once its answer has begun, and no more is allocated
// than has arrived.
func TestBodies(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	gate := make(chan struct{})
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		stream(rw, "data: 1\n\n")
		<-gate
	})
	s := newStand(t, Config{MaxBodyBytes: 50_000, MaxBodiesBytes: 60_000}, a)
	s.ready(1)
	done := make(chan reply)
	for i := range 3 {
		go func() {
			done <- s.ask(t.Context(), run(0, 8), `,"stream":true,"user":"`+strings.Repeat("u", 40_000)+`"`)
		}()
		s.until("it streams", func() bool { return a.requests() == i+1 && s.bodies.Load() == 0 })
	}
	close(gate)
	for range 3 {
		if r := <-done; r.StatusCode != 200 {
			t.Error(r.Status, r.text)
		}
	}
}

// TestNoStorm: failing requests do not make a worker be probed more often.
func TestNoStorm(t *testing.T) {
	probes := make(chan struct{}, 1<<16)
	a := newWorker(t, "a", false, nil)
	inner := a.http.Config.Handler
	a.http.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ready" {
			probes <- struct{}{}
		}
		inner.ServeHTTP(rw, r)
	})
	a.does(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	s := newStand(t, Config{ProbeEvery: time.Hour}, a)
	s.ready(1)
	for range 200 {
		s.ask(t.Context(), run(0, 8), ``)
	}
	if n := len(probes); n > 2 {
		t.Errorf("%d probes in a moment", n)
	}
}

// TestLoop: a gateway that is its own worker answers with an error instead of an endless loop.
func TestLoop(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		r.Header.Set("Via", "1.1 before, "+strings.Join(r.Header.Values("Via"), ", ")) // as some proxies do
		s.ServeHTTP(rw, r)
	})
	if r := s.ask(t.Context(), run(0, 8), ``); r.StatusCode != http.StatusLoopDetected {
		t.Error(r.Status, r.text)
	}
	if a.requests() != 1 {
		t.Errorf("%d rounds", a.requests())
	}
	s.idle()
}

// TestModelOfAll: requests without a prompt also go to a worker that serves the model.
func TestModelOfAll(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	b := newWorker(t, "b", false, func(c *card.Card) { c.Models = []string{"other"} })
	s := newStand(t, Config{}, a, b)
	s.ready(2)
	for range 8 {
		for model, want := range map[string]string{"m": "a", "other": "b"} {
			if r := s.post(t.Context(), "/v1/embeddings", fmt.Sprintf(`{"model":%q,"input":"x"}`, model)); r.worker() != want {
				t.Errorf("%s is answered by %q: %s", model, r.worker(), r.text)
			}
		}
	}
	b.does(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Retry-After", "7")
		rw.WriteHeader(503)
	})
	if r := s.ask(t.Context(), run(0, 8), `,"model":"other"`); r.StatusCode != 503 || r.Header.Get("Retry-After") != "7" {
		t.Errorf("the only worker's own answer became %s, %v", r.Status, r.Header)
	}
}
