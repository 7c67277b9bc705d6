package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/events/card"
)

const responsesBody = `{"model":"m","input":"What is light?"}`

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
