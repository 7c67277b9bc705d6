package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// dies ends an answer after its worker has begun the request.
func dies(rw http.ResponseWriter, r *http.Request) {
	begins(rw)
	panic(http.ErrAbortHandler)
}

// diesIn returns an answer that ends after the header of a stream and these bytes.
func diesIn(part string) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		begins(rw)
		rw.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(rw, part)
		rw.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

const askHi = `"messages":[{"role":"user","content":"Hi"}],"max_tokens":2`

// repeated lists requests whose worker dies, and whether they may be sent to another one.
var repeated = []struct {
	path, body string
	dies       http.HandlerFunc
	repeated   bool
}{
	{"/v1/completions", `{"prompt":"x","max_tokens":2}`, dies, true},
	{"/v1/completions", `{"prompt":"x","max_tokens":2,"stream":true}`, dies, true},
	{"/v1/completions", `{"prompt":"x","max_tokens":2,"stream":true}`, diesIn(""), true},
	{"/v1/completions", `{"prompt":"x","max_tokens":2,"stream":true}`, diesIn("data: {\"tok"), true},
	{"/v1/completions", `{"prompt":"x","max_tokens":2,"store":true}`, dies, false},
	{"/v1/embeddings", `{"input":"x"}`, dies, true},
	{"/v1/chat/completions", `{` + askHi + `,"tools":[{"type":"function","function":{"name":"f"}}]}`, dies, true},
	{"/v1/chat/completions", `{` + askHi + `,"tools":[{"type":"web_search"}]}`, dies, false},
	{"/v1/chat/completions", `{` + askHi + `,"web_search_options":{}}`, dies, false},
	{"/v1/chat/completions", `{` + askHi + `,"store":false}`, dies, true},
	{"/v1/chat/completions", `{` + askHi + `,"store":"yes"}`, dies, false},
	{"/v1/responses", `{"input":"Hi"}`, dies, false},
	{"/v1/responses", `{"input":"Hi","store":true}`, dies, false},
	{"/v1/responses", `{"input":"Hi","store":false}`, dies, true},
	{"/v1/responses", `{"input":"Hi","store":false,"background":true}`, dies, false},
	{"/v1/responses", `{"input":"Hi","store":false,"tools":[{"type":"function","name":"f"},{"type":"mcp","server_label":"s"}]}`, dies, false},
	{"/v1/messages", `{` + askHi + `}`, dies, true},
	{"/v1/messages", `{` + askHi + `,"tools":[{"name":"f","input_schema":{}},{"type":"bash_20250124","name":"bash"}]}`, dies, true},
	{"/v1/messages", `{` + askHi + `,"tools":[{"type":"web_search_20250305","name":"web_search"}]}`, dies, false},
	{"/v1/messages", `{` + askHi + `,"mcp_servers":[{"type":"url","url":"http://x","name":"x"}]}`, dies, false},
	{"/v1/completions", `{"prompt":[1,2,3],"max_tokens":2,"st\u006fre":true}`, dies, false},
	{"/v1/completions", `{"prompt":"store \u00e4","max_tokens":2}`, dies, true},
	{"/tokenize", `{"prompt":"x"}`, dies, true},
}

// TestRepeats: a request whose worker dies with it, before a byte of the answer reached the client, goes to another worker once,
// unless it has effects beyond its answer. Each try and each request is counted once.
func TestRepeats(t *testing.T) {
	for _, tc := range repeated {
		for _, foreign := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %s/foreign=%v", tc.path, tc.body, foreign), func(t *testing.T) {
				a, b := newWorker(t, "a", false, nil), newWorker(t, "b", false, nil)
				a.foreign, b.foreign = foreign, foreign
				s := newStand(t, Config{ProbeEvery: time.Hour, Retries: -1}, a, b)
				s.ready(2)
				var asked atomic.Int32
				for _, w := range []*worker{a, b} {
					w.does(func(rw http.ResponseWriter, r *http.Request) {
						if asked.Add(1) == 1 {
							tc.dies(rw, r)
						}
						w.complete(rw, r)
					})
				}
				r := s.post(t.Context(), tc.path, tc.body)
				status, tries := 200, 2
				if !tc.repeated {
					status, tries = 502, 1
				}
				if r.StatusCode != status || int(asked.Load()) != tries || !tc.repeated && !strings.Contains(r.text, "might do so twice") {
					t.Errorf("%s after %d tries, want %d after %d: %s", r.Status, asked.Load(), status, tries, r.text)
				}
				s.idle()
				s.until("it has ended", func() bool { return s.sum("requests_total") == 1 })
				if begun, answered := s.sum("attempts_total", "begun"), s.sum("attempts_total", "answered"); begun != 1 || begun+answered != float64(tries) || s.sum("attempts_total") != float64(tries) ||
					s.value("repeats_total") != float64(tries-1) || s.value("retries_total") != 0 {
					t.Errorf("%v attempts: %v begun, %v answered; %v repeats", s.sum("attempts_total"), begun, answered, s.value("repeats_total"))
				}
			})
		}
	}
}

// TestRepeatsAreBounded: requests die with at most 1 + Repeats workers, and Repeats is besides Retries.
func TestRepeatsAreBounded(t *testing.T) {
	for _, tc := range []struct{ repeats, retries, tries int }{{-1, 5, 1}, {0, 5, 2}, {2, -1, 3}, {3, 5, 4}} {
		var workers []*worker
		var asked atomic.Int32
		for i := range 5 {
			workers = append(workers, newForeign(t, fmt.Sprint("w", i)))
		}
		s := newStand(t, Config{ProbeEvery: time.Hour, Retries: tc.retries, Repeats: tc.repeats}, workers...)
		s.ready(5)
		for _, w := range workers {
			w.does(func(http.ResponseWriter, *http.Request) {
				asked.Add(1)
				panic(http.ErrAbortHandler)
			})
		}
		for _, stream := range []string{"false", "true"} {
			asked.Store(0)
			if r := s.ask(t.Context(), run(0, 8), `,"stream":`+stream); r.StatusCode != 502 || int(asked.Load()) != tc.tries || !strings.Contains(r.text, "worker_failed") {
				t.Errorf("%+v: %s after %d tries: %s", tc, r.Status, asked.Load(), r.text)
			}
		}
		s.idle()
		s.until("both have ended", func() bool { return s.sum("requests_total") == 2 })
		if got := s.sum("attempts_total", "begun"); got != float64(2*tc.tries) || s.value("repeats_total") != float64(2*(tc.tries-1)) {
			t.Errorf("%+v: %v tries and %v repeats are counted", tc, got, s.value("repeats_total"))
		}
	}
}
