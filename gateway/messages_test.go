package gateway

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/events/card"
)

const messagesBody = `{"model":"m","max_tokens":3,"messages":[{"role":"user","content":"What is light?"}]}`

// TestMessagesPass: answers of Anthropic's API pass unchanged, and the gateway reads their cached tokens.
func TestMessagesPass(t *testing.T) {
	const whole = `{"type":"message","content":[{"type":"text","text":"x"}],"usage":{"input_tokens":2,"cache_read_input_tokens":9,"output_tokens":1}}`
	const begun = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"cache_read_input_tokens\":0}}}\n\n"
	const events = begun + "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"cache_read_input_tokens\":9}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	a := newWorker(t, "a", false, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	for _, want := range []string{whole, events} {
		a.does(func(rw http.ResponseWriter, r *http.Request) {
			if body, err := io.ReadAll(r.Body); err != nil || string(body) != messagesBody || r.Header.Get("X-Api-Key") != "k" || r.URL.Path != "/v1/messages" {
				t.Errorf("the worker got %s %s %v %v", r.URL, body, r.Header, err)
			}
			if want == events {
				stream(rw, want[:30], want[30:200], want[200:])
				return
			}
			rw.Header().Set("Content-Type", "application/json")
			io.WriteString(rw, want)
		})
		if got := s.message(http.MethodPost, "/v1/messages", messagesBody); got.text != want || got.StatusCode != 200 || got.Header.Get(headerWorker) != "a" {
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
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		stream(rw, begun)
		panic(http.ErrAbortHandler)
	})
	got := s.message(http.MethodPost, "/v1/messages", messagesBody)
	if rest, ok := strings.CutPrefix(got.text, begun); !ok || !strings.HasPrefix(rest, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"worker a broke off") || !strings.HasSuffix(rest, "}\n\n") {
		t.Errorf("a broken stream: %s", got.text)
	}
	s.until("it is not confirmed", func() bool { return s.value("unconfirmed_requests_total") == 1 })
}

// TestMessagesErrors: the gateway's own errors, and its models, have the form of the API; a worker may take any name.
func TestMessagesErrors(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	for _, tc := range []struct{ method, path, body, says string }{
		{"POST", "/v1/messages", strings.Replace(messagesBody, `"m"`, `"claude-x"`, 1), `{"type":"error","error":{"type":"not_found_error","message":"no worker serves the model \"claude-x\"; the models are m"},"request_id":null}`},
		{"POST", "/v1/messages", "{", `"type":"invalid_request_error"`}, {"GET", "/v1/messages", "", `"type":"invalid_request_error"`}, {"POST", "/v1/messages/batches", "{}", `"type":"not_found_error"`},
		{"GET", "/v1/models/x", "", `"type":"not_found_error"`}, {"GET", "/v1/models", "", `{"data":[{"type":"model","id":"m","display_name":"m"`}, {"GET", "/v1/models/m", "", `{"type":"model","id":"m"`},
	} {
		if got := s.message(tc.method, tc.path, tc.body); !strings.Contains(got.text, tc.says) {
			t.Errorf("%s %s: %s %s, want %s", tc.method, tc.path, got.Status, got.text, tc.says)
		}
	}
	b := newWorker(t, "b", false, func(c *card.Card) { c.Models = []string{"n", "*"} })
	s = newStand(t, Config{}, b)
	s.ready(1)
	if got := s.message("POST", "/v1/messages", strings.Replace(messagesBody, `"m"`, `"claude-x"`, 1)); got.StatusCode != 200 {
		t.Errorf("any name: %s %s", got.Status, got.text)
	}
	if got := s.message("GET", "/v1/models", ""); !strings.Contains(got.text, `"last_id":"n"`) {
		t.Errorf("models: %s", got.text)
	}
}

// message sends a request as Anthropic's clients do.
func (s *stand) message(method, path, body string) reply {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, bytes.NewBufferString(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	req.Header.Set("X-Api-Key", "k")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return reply{res, string(text), err}
}
