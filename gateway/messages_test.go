package gateway

import (
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/events/card"
)

const messagesBody = `{"model":"m","max_tokens":3,"messages":[{"role":"user","content":"What is light?"}]}`

// anthropicHeaders are those of Anthropic's clients.
var anthropicHeaders = []string{"Anthropic-Version", "2023-06-01", "X-Api-Key", "k"}

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
		if got := s.send(tc.method, tc.path, tc.body, anthropicHeaders...); !strings.Contains(got.text, tc.says) {
			t.Errorf("%s %s: %s %s, want %s", tc.method, tc.path, got.Status, got.text, tc.says)
		}
	}
	b := newWorker(t, "b", false, func(c *card.Card) { c.Models = []string{"n", "*"} })
	s = newStand(t, Config{}, b)
	s.ready(1)
	if got := s.send("POST", "/v1/messages", strings.Replace(messagesBody, `"m"`, `"claude-x"`, 1), anthropicHeaders...); got.StatusCode != 200 {
		t.Errorf("any name: %s %s", got.Status, got.text)
	}
	if got := s.send("GET", "/v1/models", "", anthropicHeaders...); !strings.Contains(got.text, `"last_id":"n"`) {
		t.Errorf("models: %s", got.text)
	}
}
