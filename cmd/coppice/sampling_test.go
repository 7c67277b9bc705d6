package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine"
)

// TestSamplingFlags: a flag replaces one of the model's values, and a server hears of the given flags only.
func TestSamplingFlags(t *testing.T) {
	zero, k := float32(0), int32(3)
	f := samplingFlags{MinP: &zero, TopK: &k, Seed: 5}
	got := f.over(engine.SamplingParams{Temperature: 0.6, TopK: 40, TopP: 0.9, MinP: 0.1, RepetitionPenalty: 1.1})
	if got.Temperature != 0.6 || got.TopK != 3 || got.TopP != 0.9 || got.MinP != 0 || got.RepetitionPenalty != 1.1 || got.Seed != 5 {
		t.Errorf("%+v", got)
	}
	asked := make(chan map[string]any, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			w.Write([]byte(`{"data":[{"id":"m"}]}`))
			return
		}
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		asked <- body
		http.Error(w, "enough", http.StatusTeapot)
	}))
	defer s.Close()
	talk(t, "Light?\n", "--url", s.URL, "--min-p", "0", "--top-k", "3")
	select {
	case body := <-asked:
		if _, topP := body["top_p"]; topP || body["temperature"] != 0.0 || body["min_p"] != 0.0 || body["top_k"] != 3.0 { // talk gives the temperature
			t.Errorf("a chat sends %v", body)
		}
	default:
		t.Error("the chat sends nothing")
	}
}

// TestGenerateDefaults: without flags, generate samples as the model recommends.
func TestGenerateDefaults(t *testing.T) {
	t.Parallel()
	dir := nano(t)
	generate := func(more ...string) string {
		out, stderr, ok := command(t, append([]string{"generate", "--model", dir, "--max-tokens", "16", "--seed", "3", "What is light?"}, more...)...)
		if !ok {
			t.Fatal(stderr)
		}
		return out
	}
	recommend := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	greedy := generate("--temperature", "0")
	if got := generate(); got == greedy || got != generate("--temperature", "0.8", "--top-k", "40", "--top-p", "0.95", "--min-p", "0.05") {
		t.Errorf("without a recommendation %q", got)
	}
	recommend(`{"temperature": 0}`)
	if got := generate(); got != greedy {
		t.Errorf("the model recommends %q, and gets %q", greedy, got)
	}
	recommend(`{"temperature": -1}`)
	_, stderr, ok := command(t, "serve", "--model", dir, "--addr", "127.0.0.1:0")
	if ok || !strings.Contains(stderr, "--sampling-defaults neutral") {
		t.Errorf("a temperature of -1: ok %v, %s", ok, stderr)
	}
}
