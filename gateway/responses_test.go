package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/events/card"
)

const responsesBody = `{"model":"m","input":"What is light?"}`

// TestResponsesPass: answers of /v1/responses pass unchanged, also when the worker ends the connection after the last event, and
// a stream that breaks off ends with an event of that API.
func TestResponsesPass(t *testing.T) {
	const whole = `{"object":"response","output":[],"usage":{"input_tokens":2,"input_tokens_details":{"cached_tokens":9},"output_tokens":1}}`
	const begun = "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0}\n\n"
	const events = begun + "event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":1,\"response\":" + whole + "}\n\n"
	a := newWorker(t, "a", false, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	for _, want := range []string{whole, events} {
		a.does(func(rw http.ResponseWriter, r *http.Request) {
			if body, err := io.ReadAll(r.Body); err != nil || string(body) != responsesBody || r.URL.Path != "/v1/responses" {
				t.Errorf("the worker got %s %s %v", r.URL, body, err)
			}
			if want == events {
				stream(rw, want[:30], want[30:100], want[100:])
				panic(http.ErrAbortHandler)
			}
			rw.Header().Set("Content-Type", "application/json")
			io.WriteString(rw, want)
		})
		if got := s.send(http.MethodPost, "/v1/responses", responsesBody); got.text != want || got.StatusCode != 200 || got.Header.Get(headerWorker) != "a" {
			t.Errorf("%s %v %s, want %s", got.Status, got.Header, got.text, want)
		}
	}
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		stream(rw, begun)
		panic(http.ErrAbortHandler)
	})
	const end = "event: error\ndata: {\"type\":\"error\",\"sequence_number\":1,\"code\":\"worker_failed\",\"message\":\"worker a broke off its answer; ask again\",\"param\":null}\n\n"
	if got := s.send(http.MethodPost, "/v1/responses", responsesBody); got.text != begun+end {
		t.Errorf("a broken stream: %s", got.text)
	}
}

// TestResponsesPinned: requests that continue a response, refer to an item of one, or ask for one, go to the worker that has it.
// If no worker has it, they get 404; if there are workers of another kind, whose ids say nothing, any of these is asked.
func TestResponsesPinned(t *testing.T) {
	a, b := newWorker(t, "a", false, nil), newWorker(t, "b", false, nil)
	s := newStand(t, Config{}, a, b)
	s.ready(2)
	for range 3 {
		for _, name := range []string{"a", "b"} {
			digits := fmt.Sprintf("0123456789abcdef%016x", card.IDOf(name))
			for _, tc := range []struct{ method, path, body string }{
				{"POST", "/v1/responses", `{"input":"x","previous_response_id":"resp_` + digits + `"}`},
				{"POST", "/v1/responses", `{"input":[{"type":"item_reference","id":"msg_` + digits + `00"}]}`},
				{"GET", "/v1/responses/resp_" + digits, ""}, {"DELETE", "/v1/responses/resp_" + digits, ""}, {"GET", "/v1/responses/resp_" + digits + "/input_items?limit=3", ""},
				{"POST", "/v1/responses/resp_" + digits + "/cancel", ""},
			} {
				if got := s.send(tc.method, tc.path, tc.body); got.Header.Get(headerWorker) != name {
					t.Errorf("%s %s %s: worker %q, want %s: %s %s", tc.method, tc.path, tc.body, got.Header.Get(headerWorker), name, got.Status, got.text)
				}
			}
		}
	}
	unknown := fmt.Sprintf("resp_0123456789abcdef%016x", card.IDOf("gone"))
	for _, tc := range []struct{ method, path, body string }{
		{"POST", "/v1/responses", `{"input":"x","previous_response_id":"` + unknown + `"}`}, {"GET", "/v1/responses/" + unknown, ""}, {"GET", "/v1/responses/x", ""},
	} {
		if got := s.send(tc.method, tc.path, tc.body); got.StatusCode != 404 || !strings.Contains(got.text, "not found") || !strings.Contains(got.text, `"type":"invalid_request_error"`) {
			t.Errorf("%s %s: %s %s", tc.method, tc.path, got.Status, got.text)
		} else if tc.body != "" && !strings.Contains(got.text, `"param":"previous_response_id","code":"previous_response_not_found"`) {
			t.Errorf("%s: %s", tc.body, got.text)
		}
	}
	c := newWorker(t, "c", false, nil)
	c.foreign = true
	s = newStand(t, Config{}, c)
	s.ready(1)
	if got := s.send("POST", "/v1/responses", `{"input":"x","previous_response_id":"`+unknown+`"}`); got.Header.Get(headerWorker) == "" {
		t.Errorf("a worker of another kind: %s %s", got.Status, got.text)
	}
}

// send sends a request with this body.
func (s *stand) send(method, path, body string) reply {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return reply{res, string(text), err}
}
