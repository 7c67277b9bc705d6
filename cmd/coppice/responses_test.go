package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"
)

// TestResponsesDir: with --responses-dir a conversation goes on after the server was killed.
func TestResponsesDir(t *testing.T) {
	args := []string{"serve", "--addr", "127.0.0.1:0", "--no-page", "--responses-dir", t.TempDir(), "--responses-bytes", "1MiB"}
	var first, second struct {
		ID       string
		Previous string `json:"previous_response_id"`
		Usage    struct {
			Input int `json:"input_tokens"`
		}
	}
	p := startCoppice(t, "first", args...)
	p.respond(`{"input":"What is light?","max_output_tokens":4}`, &first)
	p.kill()
	p = startCoppice(t, "second", args...)
	p.respond(`{"input":"Why?","max_output_tokens":4,"previous_response_id":"`+first.ID+`"}`, &second)
	if second.Previous != first.ID || second.Usage.Input <= first.Usage.Input {
		t.Errorf("the second turn: %+v after %+v", second, first)
	}
}

// respond posts a request to /v1/responses, which must succeed, and decodes the response.
func (p *process) respond(body string, v any) {
	p.Helper()
	res, err := asker.Post(p.url+"/v1/responses", "application/json", bytes.NewBufferString(body))
	if err != nil {
		p.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(v); err != nil || res.StatusCode != http.StatusOK {
		p.Fatalf("%s: %s, %v", body, res.Status, err)
	}
}
