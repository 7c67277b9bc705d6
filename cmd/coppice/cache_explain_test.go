package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCacheExplain asks a server about prompts that it has and has not, as text, as tokens and as the
// body of a request.
func TestCacheExplain(t *testing.T) {
	t.Parallel()
	server := startCoppice(t, "server", "serve", "--addr", "127.0.0.1:0", "--model", nano(t), "--api-key", "very-secret", "--no-page")
	explain := func(args ...string) string {
		t.Helper()
		out, stderr, ok := command(t, append([]string{"cache", "explain", "--url", server.url, "--api-key", "very-secret"}, args...)...)
		if !ok || stderr != "" || strings.Count(out, "\n") != 1 {
			t.Fatalf("%q: %v, %q %q", args, ok, out, stderr)
		}
		return out
	}
	prompt := strings.Repeat("What is light? ", 10)
	const never, cached = "the next page was never stored", "The device has all whole pages of the prompt. A request would copy 9 tokens of a cached page, and compute 1 of"
	if out := explain(prompt); !strings.Contains(out, never) || !strings.HasPrefix(out, "None of the ") {
		t.Error(out)
	}
	body, err := json.Marshal(map[string]any{"messages": []map[string]string{{"role": "user", "content": prompt}}, "max_tokens": 1})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "body.json")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := explain("--request", file); !strings.Contains(out, never) {
		t.Error(out)
	}
	if _, stderr, ok := talk(t, prompt+"\n", "--url", server.url, "--api-key", "very-secret"); !ok {
		t.Fatal(stderr)
	}
	if out := explain("--request", file); !strings.Contains(out, cached) {
		t.Error(out)
	}
	var answer struct {
		Why    string
		Prompt int `json:"prompt_tokens"`
	}
	if out := explain("--tokens", "5,6,7", "--salt", "s", "--public-tokens", "2", "--json"); json.Unmarshal([]byte(out), &answer) != nil || answer.Prompt != 3 || answer.Why != "whole" {
		t.Error(out)
	}

	refused(t, []string{"refuses the key"}, "cache", "explain", "--url", server.url, "x")
	refused(t, []string{"give a prompt"}, "cache", "explain", "--url", server.url)
	refused(t, []string{"give a prompt"}, "cache", "explain", "--tokens", "1", "x")
	refused(t, []string{"--salt"}, "cache", "explain", "--request", file, "--salt", "s")
	refused(t, []string{"--request", "gone.json"}, "cache", "explain", "--request", filepath.Join(t.TempDir(), "gone.json"))
	refused(t, []string{"no answer", "coppice serve"}, "cache", "explain", "--url", "http://127.0.0.1:1", "x")
	refused(t, []string{"400", "prompt too long"}, "cache", "explain", "--url", server.url, "--api-key", "very-secret", strings.Repeat("1.", 5000))
	refused(t, []string{"--url"}, "cache", "explain", "--url", "127.0.0.1", "x")
}
