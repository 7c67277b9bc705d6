package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// wireTest is a worker's answers in one API.
type wireTest struct {
	path, body string
	headers    []string
	kind       string // media type of a stream
	whole      string // an answer that is not streamed
	idle       string // the beginning of a stream, before the first token
	first      string // its first token
	last       string // the rest of it
	broken     string // how the gateway ends a stream that the worker breaks off after first
}

const sse = "text/event-stream"

// wireTests have an API each. Every answer says that 9 prompt tokens were cached; the gateway keeps no more than the prompt has.
var wireTests = map[string]wireTest{
	"chat": {
		path: "/v1/chat/completions", body: `{"model":"m","messages":[{"role":"user","content":"What is light?"}]}`, kind: sse,
		whole:  `{"choices":[],"usage":{"prompt_tokens_details":{"cached_tokens":9}}}`,
		idle:   ": ping\n\n",
		first:  "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n",
		last:   "data: {\"choices\":[],\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":9}}}\n\ndata: [DONE]\n\n",
		broken: "data: {\"error\":{\"message\":\"worker a broke off",
	},
	"messages": {
		path: "/v1/messages", body: messagesBody, headers: anthropicHeaders, kind: sse,
		whole: `{"type":"message","content":[{"type":"text","text":"x"}],"usage":{"input_tokens":2,"cache_read_input_tokens":9,"output_tokens":1}}`,
		idle: "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"cache_read_input_tokens\":0}}}\n\n" +
			"event: ping\ndata: {\"type\":\"ping\"}\n\n",
		first:  "event: content_block_start\ndata: {\"type\":\"content_block_start\"}\n\n",
		last:   "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"cache_read_input_tokens\":9}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
		broken: "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"worker a broke off",
	},
	"responses": {
		path: "/v1/responses", body: responsesBody, kind: sse,
		whole: `{"object":"response","output":[],"usage":{"input_tokens":2,"input_tokens_details":{"cached_tokens":9},"output_tokens":1}}`,
		idle: "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0}\n\n" +
			"event: response.in_progress\ndata: {\"type\":\"response.in_progress\",\"sequence_number\":1}\n\n: ping\n\n",
		first:  "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"sequence_number\":2}\n\n",
		last:   "event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":3,\"response\":{\"usage\":{\"input_tokens_details\":{\"cached_tokens\":9}}}}\n\n",
		broken: "event: error\ndata: {\"type\":\"error\",\"sequence_number\":3,\"code\":\"worker_failed\",\"message\":\"worker a broke off its answer; ask again\",\"param\":null}\n\n",
	},
	"ollama": {
		path: "/api/chat", body: ollamaBody, kind: "application/x-ndjson",
		whole:  `{"model":"m","done":true,"done_reason":"stop","prompt_cached_count":9,"eval_count":1}` + "\n",
		idle:   `{"model":"m","message":{"role":"assistant","content":""},"done":false}` + "\n",
		first:  `{"model":"m","message":{"role":"assistant","content":"x \\"done\\":true"},"done":false}` + "\n",
		last:   `{"model":"m","done":true,"done_reason":"stop","prompt_cached_count":9,"eval_count":1}` + "\n",
		broken: `{"error":"worker a broke off`,
	},
}

// TestWires: the answers of each API pass unchanged, whole and streamed, also when the worker ends the connection after the last event. The gateway
// reads their cached tokens. What a worker sends before the first token counts as no token. A stream that breaks off ends with
// an error of that API.
func TestWires(t *testing.T) {
	for name, w := range wireTests {
		t.Run(name, func(t *testing.T) {
			a := newWorker(t, "a", false, nil)
			s := newStand(t, Config{}, a)
			s.ready(1)
			w.passes(t, s, a)
			w.idles(t, s, a)
			w.breaks(t, s, a)
		})
	}
}

// write writes a part of a stream.
func (w *wireTest) write(rw http.ResponseWriter, part string) {
	rw.Header().Set("Content-Type", w.kind)
	io.WriteString(rw, part)
	rw.(http.Flusher).Flush()
}

func (w *wireTest) passes(t *testing.T, s *stand, a *worker) {
	streamed := w.idle + w.first + w.last
	for _, want := range []string{w.whole, streamed} {
		a.does(func(rw http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil || string(body) != w.body || r.URL.Path != w.path || len(w.headers) > 0 && r.Header.Get("X-Api-Key") != "k" {
				t.Errorf("the worker got %s %s %v %v", r.URL, body, r.Header, err)
			}
			if want == streamed {
				for _, part := range []string{want[:6], want[6:60], want[60:]} {
					w.write(rw, part)
				}
				panic(http.ErrAbortHandler)
			}
			rw.Header().Set("Content-Type", "application/json")
			io.WriteString(rw, want)
		})
		if got := s.send("POST", w.path, w.body, w.headers...); got.text != want || got.StatusCode != 200 || got.worker() != "a" {
			t.Errorf("%s %v %s, want %s", got.Status, got.Header, got.text, want)
		}
	}
	s.until("both are known", func() bool {
		n := 0
		for _, r := range viewOf(s.Gateway).Recent {
			if r.CachedTokens != nil && *r.CachedTokens > 0 && r.Status == 200 {
				n++
			}
		}
		return n == 2
	})
}

// idles checks that the metric of first tokens counts a stream when its first token has come.
func (w *wireTest) idles(t *testing.T, s *stand, a *worker) {
	before, read := s.firstTokens(), make(chan struct{})
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		w.write(rw, w.idle)
		<-read
		w.write(rw, w.first+w.last)
	})
	res := s.fetch("POST", w.path, w.body, w.headers...)
	defer res.Body.Close()
	if idle := make([]byte, len(w.idle)); true {
		if _, err := io.ReadFull(res.Body, idle); err != nil || string(idle) != w.idle {
			t.Errorf("%q, %v, want %q", idle, err, w.idle)
		}
	}
	if got := s.firstTokens(); got != before {
		t.Errorf("%d first tokens before the first token", got-before)
	}
	close(read)
	rest, err := io.ReadAll(res.Body)
	if got := s.firstTokens(); err != nil || string(rest) != w.first+w.last || got != before+1 {
		t.Errorf("%s, %v; %d first tokens, want 1", rest, err, got-before)
	}
}

func (w *wireTest) breaks(t *testing.T, s *stand, a *worker) {
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		w.write(rw, w.idle)
		w.write(rw, w.first)
		w.write(rw, w.last[:20])
		panic(http.ErrAbortHandler)
	})
	got := s.send("POST", w.path, w.body, w.headers...)
	if rest, ok := strings.CutPrefix(got.text, w.idle+w.first); !ok || !strings.HasPrefix(rest, w.broken) || !strings.HasSuffix(rest, "\n") {
		t.Errorf("a broken stream: %s", got.text)
	}
	s.until("it is not confirmed", func() bool { return s.value("unconfirmed_requests_total") == 1 })
}

// firstTokens returns how many streams have had a first token.
func (s *stand) firstTokens() uint64 {
	s.t.Helper()
	families, err := s.cfg.Registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "coppice_router_time_to_first_token_seconds" {
			return f.Metric[0].GetHistogram().GetSampleCount()
		}
	}
	s.t.Fatal("there is no metric of first tokens")
	return 0
}
