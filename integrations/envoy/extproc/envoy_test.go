package extproc

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway"
	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/router"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// long is how long a test waits for what comes soon or never.
const long = time.Minute

// fleet is a gateway whose workers answer probes only: Envoy would send the requests.
type fleet struct {
	*gateway.Gateway
	t     testing.TB
	hosts []string
}

// newFleet starts n workers without events, called a, b, …, and a gateway. change may change its configuration.
func newFleet(t testing.TB, n int, change func(*gateway.Config)) *fleet {
	t.Helper()
	f := &fleet{t: t}
	cfg := gateway.Config{
		Router: router.Config{BlockTokens: 4}, ProbeEvery: 10 * time.Millisecond, ProbeTimeout: long, DialTimeout: long, StallAfter: time.Hour,
	}
	for i := range n {
		w := httptest.NewServer(probed(card.Card{Name: string(rune('a' + i)), Models: []string{"m"}, BlockTokens: 4, PoolTokens: 4096, StepTokens: 512, Epoch: 1}))
		t.Cleanup(w.Close)
		f.hosts = append(f.hosts, strings.TrimPrefix(w.URL, "http://"))
		cfg.Workers = append(cfg.Workers, gateway.WorkerConfig{URL: w.URL})
	}
	if change != nil {
		change(&cfg)
	}
	g, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.Gateway = g
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	f.until("workers healthy", func() bool {
		healthy := 0
		for _, w := range g.Fleet().Workers {
			if w.State == "healthy" {
				healthy++
			}
		}
		return healthy == n
	})
	return f
}

// probed answers a gateway's probes as the worker with this card.
func probed(c card.Card) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+card.Path, func(w http.ResponseWriter, _ *http.Request) { w.Write(c.Append(nil)) })
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"data":[{"id":"m"}]}`) })
	mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	return mux
}

func (f *fleet) until(what string, ok func() bool) {
	f.t.Helper()
	for end := time.Now().Add(long); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("%s: not within %v; %+v", what, long, f.Fleet())
		}
	}
}

// busy returns the number of requests that have a place at a worker.
func (f *fleet) busy() (n int) {
	for _, w := range f.Fleet().Workers {
		for _, r := range w.Ranks {
			n += r.Requests
		}
	}
	return n
}

// queued returns the number of requests that wait for a worker.
func (f *fleet) queued() (n int) {
	var view struct {
		Queued int `json:"queued_requests"`
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1/v1/fleet/view", nil))
	if err := json.Unmarshal(w.Body.Bytes(), &view); err != nil {
		f.t.Fatal(err)
	}
	return view.Queued
}

// server returns a Server of the fleet.
func (f *fleet) server(change func(*Config)) *Server {
	f.t.Helper()
	cfg := Config{Gateway: f.Gateway}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// envoy is Envoy's side of one stream: it sends what next gives, and keeps what it gets.
type envoy struct {
	grpc.ServerStream
	ctx  context.Context
	next func() (*extprocv3.ProcessingRequest, error)

	mu  sync.Mutex
	got []*extprocv3.ProcessingResponse
}

func (e *envoy) Context() context.Context { return e.ctx }

func (e *envoy) Recv() (*extprocv3.ProcessingRequest, error) { return e.next() }

func (e *envoy) Send(m *extprocv3.ProcessingResponse) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.ctx.Err(); err != nil {
		return err
	}
	e.got = append(e.got, proto.Clone(m).(*extprocv3.ProcessingResponse)) // gRPC encodes it before Send returns
	return nil
}

// sends returns a next that sends these messages, and then closes the stream with err.
func sends(err error, all ...*extprocv3.ProcessingRequest) func() (*extprocv3.ProcessingRequest, error) {
	return func() (*extprocv3.ProcessingRequest, error) {
		if len(all) == 0 {
			return nil, err
		}
		m := all[0]
		all = all[1:]
		return m, nil
	}
}

// play lets the server process a stream of these messages, which Envoy closes then.
func (s *Server) play(t testing.TB, all ...*extprocv3.ProcessingRequest) (*envoy, error) {
	e := &envoy{ctx: t.Context(), next: sends(io.EOF, all...)}
	return e, s.Process(e)
}

// headers returns a header map of name, value, name, value, …
func headers(pairs ...string) *corev3.HeaderMap {
	m := &corev3.HeaderMap{}
	for i := 0; i < len(pairs); i += 2 {
		h := &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])}
		if i%4 == 0 { // as older versions of Envoy do
			h = &corev3.HeaderValue{Key: pairs[i], Value: pairs[i+1]}
		}
		m.Headers = append(m.Headers, h)
	}
	return m
}

// head returns the headers of a request.
func head(method, path string, end bool, more ...string) *extprocv3.ProcessingRequest {
	pairs := append([]string{":method", method, ":path", path, ":authority", "models.example", ":scheme", "http"}, more...)
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: headers(pairs...), EndOfStream: end}}}
}

func bodyPart(text string, end bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte(text), EndOfStream: end}}}
}

func trailers() *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}}
}

func answerHead(status string, end bool, more ...string) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{
		Headers: headers(append([]string{":status", status}, more...)...), EndOfStream: end,
	}}}
}

func answerPart(text string, end bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: []byte(text), EndOfStream: end}}}
}

func answerTrailers() *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}}
}

// with adds a value to the filters' metadata of a message.
func with(m *extprocv3.ProcessingRequest, namespace, key string, value any) *extprocv3.ProcessingRequest {
	v, err := structpb.NewValue(value)
	if err != nil {
		panic(err)
	}
	m.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{namespace: {Fields: map[string]*structpb.Value{key: v}}}}
	return m
}

// seen is what a stream of responses says, in the order that the protocol wants.
type seen struct {
	immediate   int // status; 0: none
	text        string
	destination string
	metadata    string
	set         map[string]string // headers of the request
	body        strings.Builder
	bodyEnds    bool
	trailers    bool
	answer      map[string]string // headers of the answer
	answerBody  strings.Builder
	answerEnds  bool
	answerTrail bool
	fault       string // what the protocol does not allow
}

// read reads the responses of a stream, and notes the first that the protocol does not allow.
func (e *envoy) read() *seen {
	s := &seen{}
	bad := func(format string, args ...any) {
		if s.fault == "" {
			s.fault = fmt.Sprintf(format, args...)
		}
	}
	for i, m := range e.got {
		if s.immediate != 0 {
			bad("message %d comes after the immediate response", i)
		}
		switch of := m.GetResponse().(type) {
		case *extprocv3.ProcessingResponse_ImmediateResponse:
			if s.set != nil && s.answer == nil {
				bad("an immediate response after the request was let go")
			}
			s.immediate, s.text = int(of.ImmediateResponse.GetStatus().GetCode()), string(of.ImmediateResponse.GetBody())
		case *extprocv3.ProcessingResponse_RequestHeaders:
			if s.set != nil {
				bad("request headers twice")
			}
			c := of.RequestHeaders.GetResponse()
			s.set = values(c)
			s.destination, s.metadata = s.set[headerDestination], m.GetDynamicMetadata().GetFields()["envoy.lb"].GetStructValue().GetFields()[headerDestination].GetStringValue()
			if !c.GetClearRouteCache() {
				bad("the route cache stays")
			}
		case *extprocv3.ProcessingResponse_RequestBody:
			part := of.RequestBody.GetResponse().GetBodyMutation().GetStreamedResponse()
			if s.set == nil || s.bodyEnds || s.trailers || part == nil || len(part.GetBody()) > 64<<10 {
				bad("message %d: a part of the request's body is out of place or too long", i)
			}
			s.body.Write(part.GetBody())
			s.bodyEnds = part.GetEndOfStream()
		case *extprocv3.ProcessingResponse_RequestTrailers:
			if s.set == nil || s.bodyEnds || s.trailers {
				bad("request trailers out of place")
			}
			s.trailers = true
		case *extprocv3.ProcessingResponse_ResponseHeaders:
			if s.set == nil || s.answer != nil {
				bad("response headers out of place")
			}
			s.answer = values(of.ResponseHeaders.GetResponse())
		case *extprocv3.ProcessingResponse_ResponseBody:
			part := of.ResponseBody.GetResponse().GetBodyMutation().GetStreamedResponse()
			if s.answer == nil || s.answerEnds || s.answerTrail || part == nil {
				bad("message %d: a part of the answer's body is out of place", i)
			}
			s.answerBody.Write(part.GetBody())
			s.answerEnds = part.GetEndOfStream()
		case *extprocv3.ProcessingResponse_ResponseTrailers:
			if s.answer == nil || s.answerEnds || s.answerTrail {
				bad("response trailers out of place")
			}
			s.answerTrail = true
		default:
			bad("message %d is %T", i, of)
		}
	}
	return s
}

// values returns the headers that a response sets.
func values(c *extprocv3.CommonResponse) map[string]string {
	all := map[string]string{}
	for _, h := range c.GetHeaderMutation().GetSetHeaders() {
		all[h.GetHeader().GetKey()] = string(h.GetHeader().GetRawValue())
	}
	return all
}
