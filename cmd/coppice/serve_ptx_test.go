package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// TestServePTX checks a server on the interpreter of CUDA's kernels. It continues prompts as one without tiers does, also
// from KV that had left the device for host memory and, after a restart, for the disk; and it answers a chat with a format
// and log-probabilities, which CUDA graphs compute.
func TestServePTX(t *testing.T) {
	t.Parallel()
	args := []string{"serve", "--addr", "127.0.0.1:0", "--backend", "ptxvm", "--model", nano(t), "--kv-tokens", "384", "--page-tokens", "16",
		"--max-running", "2", "--step-tokens", "256", "--no-page"}
	l := newTierLoad(t, 3, 200, args) // records of several pages
	tiered := append(args, "--kv-host", "16MiB", "--kv-disk", t.TempDir()+":64MiB", "--kv-write", "through", "--kv-token-time", "1s")
	ask := func(p *process) (below map[string]int) {
		below = map[string]int{}
		for n := range l.want {
			text, u, err := l.ask(p.url, n)
			if err != nil || text != l.want[n] {
				t.Errorf("prompt %d is continued by %q, want %q, %v", n, text, l.want[n], err)
			}
			for tier, tokens := range u.Usage.Details.Tiers {
				below[tier] += tokens
			}
		}
		return below
	}
	p := startCoppice(t, "tiered", tiered...)
	for rounds := 0; ask(p)["host"] == 0; rounds++ {
		if rounds == 8 {
			t.Fatal("no prompt was found in host memory")
		}
	}
	chatPTX(t, p.url)
	p.stop()
	if below := ask(startCoppice(t, "tiered again", tiered...)); below["disk"] == 0 {
		t.Errorf("after a restart nothing is found on disk: %v", below)
	}
}

// chatPTX asks for an answer in JSON, with log-probabilities.
func chatPTX(t *testing.T, url string) {
	t.Helper()
	body := `{"messages": [{"role": "user", "content": "a"}], "max_tokens": 5, "seed": 1, "response_format": {"type": "json_object"}, "logprobs": true, "top_logprobs": 2}`
	res, err := asker.Post(url+"/v1/chat/completions", "application/json", bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var answer struct {
		Choices []struct {
			Message  struct{ Content string }
			Logprobs struct {
				Content []struct {
					Logprob float64
					Top     []any `json:"top_logprobs"`
				}
			}
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || res.StatusCode != http.StatusOK || len(answer.Choices) != 1 {
		t.Fatalf("%s, %v, %+v", res.Status, err, answer)
	}
	c := answer.Choices[0]
	if list := c.Logprobs.Content; !strings.HasPrefix(strings.TrimSpace(c.Message.Content), "{") || len(list) != 5 || len(list[4].Top) != 2 || list[4].Logprob > 0 {
		t.Errorf("the answer is %+v, want the beginning of an object and log-probabilities", c)
	}
}
