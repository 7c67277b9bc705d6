package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine"
)

// TestAliases: requests may use any of the model's names; answers use the first.
func TestAliases(t *testing.T) {
	b := start(t, setup{Server: Config{Aliases: []string{"gpt-4o", "org/small"}, Version: "v1.2.3", TokenizerInfo: []byte(`{"eos_token":"</s>"}`)}})
	for _, name := range []string{"nano", "gpt-4o", "org/small"} {
		if r := b.ask("/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":"x","max_tokens":1}`, name)); r.Model != "nano" {
			t.Errorf("an answer for %s says %s", name, r.Model)
		}
		if r := b.ask("/v1/chat/completions", fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"x"}],"max_tokens":1}`, name)); r.Model != "nano" {
			t.Errorf("an answer for %s says %s", name, r.Model)
		}
		if a := b.do("GET", "/v1/models/"+name, ""); a.StatusCode != 200 || !strings.Contains(string(a.body), fmt.Sprintf(`"id":%q`, name)) {
			t.Errorf("%s: %s %s", name, a.Status, a.body)
		}
	}
	b.refused("POST", "/v1/completions", `{"model":"small","prompt":"x"}`, 404, "model_not_found")
	for path, want := range map[string][]string{
		"/v1/models": {`"id":"nano"`, `"id":"gpt-4o"`, `"id":"org/small"`}, "/version": {`{"version":"v1.2.3"}`},
		"/tokenizer_info": {`{"eos_token":"</s>"}`}, "/metrics": {`coppice_build_info{backend="cpu"`, `version="v1.2.3"} 1`, `model_name="nano"`},
	} {
		text := string(b.do("GET", path, "").body)
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s lacks %s: %.300s", path, w, text)
			}
		}
	}
	b.ask("/v1/completions", `{"prompt":"What is light, and what is it not?","max_tokens":1}`)
	if a := b.do("POST", "/reset_prefix_cache", ""); a.StatusCode != 200 || b.stats().Scheduler.Cache.Tokens != 0 {
		t.Errorf("%s, and %d tokens are cached", a.Status, b.stats().Scheduler.Cache.Tokens)
	}
	for _, bad := range [][]string{{""}, {"nano"}, {"a", "a"}} {
		if err := (Config{Model: "nano", Aliases: bad}).WithDefaults().Validate(); err == nil || !strings.Contains(err.Error(), "Aliases") {
			t.Errorf("aliases %q: %v", bad, err)
		}
	}
}

// TestSamplingDefaults: parameters missing in a request come from the model's defaults; null
// counts as missing.
func TestSamplingDefaults(t *testing.T) {
	neutral := start(t, setup{})
	b := start(t, setup{Server: Config{Sampling: &engine.SamplingParams{Temperature: 0.7, TopK: 3, TopP: 0.9, MinP: 0.01, RepetitionPenalty: 1.3}}})
	const rest = `{"prompt":"What is light?","max_tokens":24,"seed":7`
	text := func(b *bed, more string) string {
		b.Helper()
		return b.ask("/v1/completions", rest+more+"}").Choices[0].Text
	}
	all := `,"temperature":0.7,"top_k":3,"top_p":0.9,"min_p":0.01,"repetition_penalty":1.3`
	want := text(neutral, all)
	if got := text(b, ""); got != want || got == text(neutral, "") {
		t.Errorf("by default %q, want %q", got, want)
	}
	if got := text(b, `,"temperature":null`); got != want {
		t.Errorf("with null %q, want %q", got, want)
	}
	for b, want := range map[*bed]string{neutral: "temperature=1", b: "min_p=0.01, repetition_penalty=1.3, temperature=0.7, top_k=3, top_p=0.9"} {
		if got := b.do("POST", "/v1/completions", rest+"}").Header.Get("X-Coppice-Sampling-Defaults"); got != want {
			t.Errorf("a header says that the defaults are %q, want %q", got, want)
		}
	}
	off := `,"temperature":1,"top_k":-1,"top_p":1,"min_p":0,"repetition_penalty":1`
	if got, want := text(b, off), text(neutral, ""); got != want {
		t.Errorf("with fields of its own %q, want %q", got, want)
	}
	biased := start(t, setup{Server: Config{Sampling: &engine.SamplingParams{Temperature: 1, Bias: []engine.TokenBias{{Token: 5, Bias: 50}}}}})
	for ask, same := range map[string]string{"": `,"logit_bias":{"5":50}`, `,"logit_bias":{"6":50}`: `,"logit_bias":{"6":50}`} {
		if got, want := text(biased, ask), text(neutral, same); got != want || got == text(neutral, "") {
			t.Errorf("with a bias by default and %q: %q, want %q", ask, got, want)
		}
	}
	const chat = `{"messages":[{"role":"user","content":"What is light?"}],"max_tokens":24,"seed":7`
	one := b.ask("/v1/chat/completions", chat+"}").Choices[0].Message.Content
	if two := neutral.ask("/v1/chat/completions", chat+all+"}").Choices[0].Message.Content; one != two {
		t.Errorf("a chat gives %q, want %q", one, two)
	}
}
