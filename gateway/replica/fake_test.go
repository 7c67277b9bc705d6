package replica

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
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
	"github.com/coppice-llm/coppice/gateway"
	"github.com/coppice-llm/coppice/gateway/internal/dispatch"
	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/kv"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

const blockTokens = 4

// long is how long a test waits for an event that comes soon or never.
const long = time.Minute

// worker is a fake worker without events.
type worker struct {
	http   *httptest.Server
	asked  atomic.Int64
	answer atomic.Pointer[http.HandlerFunc]
}

// newWorker starts a worker, with events if published.
func newWorker(t *testing.T, name string, published bool) *worker {
	t.Helper()
	w := &worker{}
	c := card.Card{Name: name, Models: []string{"m"}, BlockTokens: blockTokens, PoolTokens: 4096, StepTokens: 512, Epoch: 1}
	if published {
		sender := zmq.NewSender(zmq.SenderConfig{Endpoint: "tcp://127.0.0.1:0", ReplayEndpoint: "tcp://127.0.0.1:0", Bind: true})
		pub, err := eventstest.NewPublisher(events.PublisherConfig{Heartbeat: 50 * time.Millisecond}, sender)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { pub.Close() })
		c.ZMQ = &card.ZMQ{Port: sender.Addr().(*net.TCPAddr).Port, ReplayPort: sender.ReplayAddr().(*net.TCPAddr).Port}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+card.Path, func(rw http.ResponseWriter, r *http.Request) { rw.Write(c.Append(nil)) })
	mux.HandleFunc("GET /ready", func(rw http.ResponseWriter, r *http.Request) {})
	mux.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
		w.asked.Add(1)
		(*w.answer.Load())(rw, r)
	})
	w.does(complete)
	w.http = httptest.NewServer(mux)
	t.Cleanup(func() { w.http.CloseClientConnections(); w.http.Close() })
	return w
}

func (w *worker) does(f http.HandlerFunc) { w.answer.Store(&f) }

func (w *worker) requests() int { return int(w.asked.Load()) }

func complete(rw http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	io.WriteString(rw, "{}")
}

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

// stand is a gateway in front of workers.
type stand struct {
	*gateway.Gateway
	*Replicas // nil: not connected to other routers
	t         *testing.T
	d         *dispatch.Dispatcher
	url       string
	logs      *observer.ObservedLogs
}

func newStand(t *testing.T, cfg gateway.Config, talk *Config, workers ...*worker) *stand {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	s := &stand{t: t, logs: logs}
	cfg.Log = zap.New(core)
	cfg.Router.BlockTokens = blockTokens
	if cfg.ProbeEvery == 0 {
		cfg.ProbeEvery = 10 * time.Millisecond
	}
	cfg.ProbeTimeout, cfg.DialTimeout = long, long // no worker is lost for being slow
	cfg.StallAfter, cfg.EventSilence = time.Hour, time.Hour
	for _, w := range workers {
		cfg.Workers = append(cfg.Workers, members.WorkerConfig{URL: w.http.URL})
	}
	cfg.Replicas = func(d *dispatch.Dispatcher, log *zap.Logger, notify func(error)) (dispatch.Peers, error) {
		s.d = d
		if talk == nil {
			return nil, nil
		}
		p, err := talk.Join(d, log, notify)
		s.Replicas, _ = p.(*Replicas)
		return p, err
	}
	var err error
	if s.Gateway, err = gateway.New(cfg); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Gateway)
	s.url = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

func (s *stand) Close() error { return s.Gateway.Close() }

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

// ready waits until n workers are healthy.
func (s *stand) ready(n int) {
	s.t.Helper()
	s.until("workers ready", func() bool {
		got := 0
		for _, w := range s.Fleet().Workers {
			if w.State == "healthy" && w.Mode != "waiting" {
				got++
			}
		}
		return got == n
	})
}

// idle waits until no worker has a request, by the router's count.
func (s *stand) idle() {
	s.t.Helper()
	s.until("nothing reserved", func() bool {
		for _, l := range s.d.Loads() {
			if l.Requests+l.PrefillTokens+l.Blocks != 0 {
				return false
			}
		}
		return true
	})
}

// ask sends a completion request and returns the header of its answer.
func (s *stand) ask(start int, rest string) http.Header {
	s.t.Helper()
	res, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(fmt.Sprintf(`{"prompt":%s%s}`, numbers(start, 64), rest)))
	if err != nil {
		s.t.Error(err)
		return http.Header{}
	}
	defer res.Body.Close()
	if text, _ := io.ReadAll(res.Body); res.StatusCode != 200 {
		s.t.Errorf("%s %s", res.Status, text)
	}
	return res.Header
}

// run returns n tokens from start on.
func run(start, n int) []kv.Token {
	out := make([]kv.Token, n)
	for i := range out {
		out[i] = kv.Token(start + i)
	}
	return out
}

func numbers(start, n int) string {
	return strings.ReplaceAll(fmt.Sprint(run(start, n)), " ", ",")
}

const headerWorker, headerSession, headerOverlap = "X-Coppice-Worker", "X-Session-Id", "X-Coppice-Overlap-Blocks"
