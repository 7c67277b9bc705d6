package gateway

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/eventstest"
	"github.com/coppice-llm/coppice/events/zmq"
	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/internal/natstest"
	"github.com/coppice-llm/coppice/kv"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

const blockTokens = 4

// worker is a process that answers like a worker, with max_tokens tokens, and publishes the
// blocks that it is told to hold.
type worker struct {
	t    *testing.T
	name string
	http *httptest.Server
	card card.Card
	pub  *eventstest.Publisher

	mu       sync.Mutex
	asked    int
	cards    int              // times that it returned its card
	answer   http.HandlerFunc // replaces the usual answer
	draining atomic.Bool
	sick     atomic.Bool
	foreign  bool // it has no card
}

// newWorker starts a worker, with events if published.
func newWorker(t *testing.T, name string, published bool, change func(*card.Card)) *worker {
	t.Helper()
	w := &worker{t: t, name: name}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+card.Path, func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.cards++
		if w.foreign {
			rw.WriteHeader(404)
			return
		}
		rw.Write(w.card.Append(nil))
	})
	mux.HandleFunc("GET /v1/models", func(rw http.ResponseWriter, r *http.Request) {
		io.WriteString(rw, `{"data":[{"id":"m"}]}`)
	})
	mux.HandleFunc("GET /ready", func(rw http.ResponseWriter, r *http.Request) {
		if w.draining.Load() || w.sick.Load() {
			rw.WriteHeader(503)
		}
	})
	mux.HandleFunc("GET /health", func(rw http.ResponseWriter, r *http.Request) {
		if w.sick.Load() {
			rw.WriteHeader(503)
		}
	})
	mux.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.asked++
		answer := w.answer
		w.mu.Unlock()
		if answer == nil {
			answer = w.complete
		}
		answer(rw, r)
	})
	w.http = httptest.NewUnstartedServer(mux)
	w.http.Config.ErrorLog = nil
	w.card = card.Card{Name: name, Models: []string{"m"}, BlockTokens: blockTokens, PoolTokens: 4096, StepTokens: 512, Epoch: 1}
	if published {
		w.publish("tcp://127.0.0.1:0", "tcp://127.0.0.1:0", blockTokens)
	}
	if change != nil {
		change(&w.card)
	}
	w.http.Start()
	t.Cleanup(w.close)
	return w
}

// long is how long a test waits for an event that comes soon or never: a loaded machine may
// stall for seconds.
const long = time.Minute

// bind retries until a port that was released is free again: for a moment another process's
// connection may use it.
func bind(t testing.TB, try func() error) {
	t.Helper()
	for end := time.Now().Add(long); ; time.Sleep(time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// publish opens the event sockets.
func (w *worker) publish(at, replay string, tokens int) {
	w.beats(at, replay, tokens, 50*time.Millisecond)
}

// beats is publish with a heartbeat, or without if heartbeat is negative.
func (w *worker) beats(at, replay string, tokens int, heartbeat time.Duration) {
	var sender *zmq.Sender
	bind(w.t, func() (err error) {
		sender = zmq.NewSender(zmq.SenderConfig{Endpoint: at, ReplayEndpoint: replay, Bind: true})
		w.pub, err = eventstest.NewPublisher(events.PublisherConfig{Heartbeat: heartbeat}, sender)
		return err
	})
	w.card.ZMQ = &card.ZMQ{Port: sender.Addr().(*net.TCPAddr).Port, ReplayPort: sender.ReplayAddr().(*net.TCPAddr).Port}
}

// republish replaces the publisher by one with another block size.
func (w *worker) republish(tokens int) {
	if err := w.pub.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.publish(fmt.Sprintf("tcp://127.0.0.1:%d", w.card.ZMQ.Port), fmt.Sprintf("tcp://127.0.0.1:%d", w.card.ZMQ.ReplayPort), tokens)
	w.hold(run(0, 8*tokens), tokens)
}

func (w *worker) close() {
	w.http.CloseClientConnections()
	w.http.Close()
	if w.pub != nil {
		w.pub.Close()
		w.pub = nil
	}
}

// holds publishes that the worker has stored the blocks of tokens.
func (w *worker) holds(tokens []kv.Token) { w.hold(tokens, blockTokens) }

func (w *worker) hold(tokens []kv.Token, size int) { w.holdIn(kv.TierDevice, tokens, size) }

func (w *worker) holdIn(tier kv.Tier, tokens []kv.Token, size int) {
	h := kv.NewHasher(kv.Namespace{}, size)
	ev := kv.Event{Kind: kv.Stored, Tier: tier}
	for i := 0; i+size <= len(tokens); i += size {
		b := tokens[i : i+size]
		hash, local := h.Next(b)
		ev.Blocks = append(ev.Blocks, kv.Block{Hash: hash, Local: local, Tokens: b})
	}
	w.pub.Publish([]kv.Event{ev})
}

// does makes f answer all requests from now on.
func (w *worker) does(f http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = f
}

func (w *worker) requests() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

func (w *worker) complete(rw http.ResponseWriter, r *http.Request) {
	var ask struct {
		Stream bool `json:"stream"`
		Max    int  `json:"max_tokens"`
	}
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
		rw.WriteHeader(400)
		return
	}
	if !ask.Stream {
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(rw, `{"worker":%q,"tokens":%d}`, w.name, ask.Max)
		return
	}
	rw.Header().Set("Content-Type", "text/event-stream")
	for i := range ask.Max {
		fmt.Fprintf(rw, "data: {\"token\":%d}\n\n", i)
		rw.(http.Flusher).Flush()
	}
	io.WriteString(rw, "data: [DONE]\n\n")
}

// stand is a gateway in front of workers.
type stand struct {
	*Gateway
	t    *testing.T
	url  string
	logs *observer.ObservedLogs
}

func newStand(t *testing.T, cfg Config, workers ...*worker) *stand {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	if cfg.Log == nil {
		cfg.Log = zap.New(core)
	}
	cfg.Router.BlockTokens = blockTokens
	if cfg.ProbeEvery == 0 {
		cfg.ProbeEvery = 10 * time.Millisecond
	}
	cfg.ProbeTimeout, cfg.DialTimeout = long, long // no worker is lost for being slow
	cfg.StallAfter = cmp.Or(cfg.StallAfter, time.Hour)
	cfg.EventSilence = cmp.Or(cfg.EventSilence, time.Hour)
	for _, w := range workers {
		cfg.Workers = append(cfg.Workers, members.WorkerConfig{URL: w.http.URL})
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(g)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return &stand{Gateway: g, t: t, url: s.URL, logs: logs}
}

// until polls for a condition that becomes true soon or never.
func (s *stand) until(what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(long); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			text, _ := json.MarshalIndent(s.Fleet(), "", " ")
			s.t.Fatalf("%s: not within %v; %s", what, long, text)
		}
	}
}

// ready waits until n workers are healthy and, if they have events, live.
func (s *stand) ready(n int) {
	s.t.Helper()
	s.until("workers ready", func() bool {
		got := 0
		for _, w := range s.Fleet().Workers {
			if w.State == "healthy" && w.Mode != "waiting" {
				got++
			}
		}
		return got == n && s.members.Summary().Ready == n
	})
}

// heard sets the time of the last byte of the answers from a worker.
func (s *stand) heard(m *members.Member, nanos int64) {
	s.attempts.mu.Lock()
	defer s.attempts.mu.Unlock()
	for a := range s.attempts.at[m] {
		a.heard.Store(nanos)
	}
}

// patience sets how long a lost worker may be silent.
func (s *stand) patience(d time.Duration) {
	s.attempts.mu.Lock()
	defer s.attempts.mu.Unlock()
	s.attempts.patience = d
}

func natsServer(t testing.TB, addr string) *natstest.Server {
	t.Helper()
	var s *natstest.Server
	bind(t, func() (err error) {
		s, err = natstest.Start(natstest.Config{Addr: addr})
		return err
	})
	t.Cleanup(s.Close)
	return s
}

func (s *stand) worker(name string) WorkerStatus {
	for _, w := range s.Fleet().Workers {
		if w.Name == name {
			return w
		}
	}
	return WorkerStatus{}
}

// idle waits until no worker has a request, by the router's count.
func (s *stand) idle() {
	s.t.Helper()
	s.until("nothing reserved", func() bool {
		for _, l := range s.dispatch.Loads() {
			if l.Requests+l.PrefillTokens+l.Blocks != 0 {
				return false
			}
		}
		return s.bodies.Load() == 0
	})
}

type reply struct {
	*http.Response
	text string
	err  error // error of reading the answer
}

// ask sends a completion request and reads the whole answer.
func (s *stand) ask(ctx context.Context, tokens []kv.Token, rest string) reply {
	s.t.Helper()
	prompt, _ := json.Marshal(tokens)
	return s.post(ctx, "/v1/completions", fmt.Sprintf(`{"prompt":%s%s}`, prompt, rest))
}

func (s *stand) post(ctx context.Context, path, body string) reply {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return reply{Response: &http.Response{Header: http.Header{}}, err: err}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(bufio.NewReader(res.Body))
	return reply{res, string(text), err}
}

// send sends a request with this body, and these headers, each a name and a value.
func (s *stand) send(method, path, body string, headers ...string) reply {
	s.t.Helper()
	res := s.fetch(method, path, body, headers...)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return reply{res, string(text), err}
}

// fetch is send, and leaves the body of the answer to the caller.
func (s *stand) fetch(method, path, body string, headers ...string) *http.Response {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	return res
}

func (r reply) worker() string { return r.Header.Get(headerWorker) }

// run returns n tokens from start on.
func run(start, n int) []kv.Token {
	out := make([]kv.Token, n)
	for i := range out {
		out[i] = kv.Token(start + i)
	}
	return out
}

// at returns the gateway's status of a worker, found by URL.
func (s *stand) at(w *worker) WorkerStatus {
	for _, status := range s.Fleet().Workers {
		if status.URL == w.http.URL {
			return status
		}
	}
	return WorkerStatus{}
}
