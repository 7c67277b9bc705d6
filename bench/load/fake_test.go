package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"sync"
	"testing"
	"time"
)

const (
	completionChunk = `{"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"m","choices":[{"text":" light","index":0,"logprobs":null,"finish_reason":null}],"usage":null}`
	chatChunk       = `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" light"},"logprobs":null,"finish_reason":null}],"usage":null}`
)

// fake is a server of the OpenAI API with scripted answers. It counts requests.
type fake struct {
	model  string
	answer func(w *writer, n int, q query) // n numbers the requests from 0

	mu           sync.Mutex
	queries      []query
	active, peak int
}

// query is a received request.
type query struct {
	at      time.Time
	path    string
	key     string
	session string   // header
	tokens  []uint32 // of the prompt
	text    string   // of the prompt
	body    map[string]any
}

// writer writes one answer.
type writer struct {
	http.ResponseWriter
	ctx context.Context
}

// event writes a single event and flushes it.
func (w *writer) event(format string, args ...any) {
	fmt.Fprintf(w, "data: "+format+"\n\n", args...)
	w.Flush()
}

func (w *writer) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

// text writes a chunk of a completion.
func (w *writer) text(s string) { w.event(`{"choices":[{"index":0,"text":%q}]}`, s) }

// end writes the end of a complete stream: finish_reason, usage with these numbers of tokens, and
// [DONE]. more is further JSON in the object usage.
func (w *writer) end(prompt, output int, more string) {
	w.event(`{"choices":[{"index":0,"text":"","finish_reason":"length"}]}`)
	w.event(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d%s}}`, prompt, output, more)
	w.event("[DONE]")
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/models" {
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q}]}`, f.model)
		return
	}
	q := query{at: time.Now(), path: r.URL.Path, key: r.Header.Get("Authorization"), session: r.Header.Get("x-session-id")}
	text, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(text, &q.body) != nil {
		http.Error(w, "bad JSON: "+string(text), 400)
		return
	}
	switch p := q.body["prompt"].(type) {
	case string:
		q.text = p
	case []any:
		for _, id := range p {
			q.tokens = append(q.tokens, uint32(id.(float64)))
		}
	}
	f.mu.Lock()
	n := len(f.queries)
	f.queries = append(f.queries, q)
	f.active++
	f.peak = max(f.peak, f.active)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.active--
		f.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	f.answer(&writer{w, r.Context()}, n, q)
}

// pipes is a network inside the process, so that a run can be in a bubble of
// testing/synctest, where time is exact.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// dialFake serves f inside the process until the test ends, and returns a client.
func dialFake(t *testing.T, f *fake, cfg ClientConfig) *Client {
	t.Helper()
	if f.model == "" {
		f.model = "m"
	}
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	s := &http.Server{Handler: f}
	served := make(chan struct{})
	go func() { s.Serve(p); close(served) }()
	transport := &http.Transport{DialContext: p.dial, MaxIdleConnsPerHost: 1000}
	cfg.URL, cfg.Transport = "http://fake", transport
	c, err := Dial(context.Background(), cfg)
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		s.Close()
		<-served
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// steady returns a script of n chunks, the first after ttft, then one after each gap.
func steady(ttft, gap time.Duration, n int) func(*writer, int, query) {
	return func(w *writer, _ int, q query) {
		time.Sleep(ttft)
		for i := range n {
			if i > 0 {
				time.Sleep(gap)
			}
			w.text(" light")
		}
		w.end(len(q.tokens), n, "")
	}
}

func sameJSON(t *testing.T, got []byte, want string) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal(got, &a); err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatalf("%v: %s", err, want)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
