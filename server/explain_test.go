package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cpu"
)

// explained asks for an explanation of a request.
func (b *bed) explained(body string) (e explanation) {
	b.Helper()
	a := b.do("POST", "/v1/cache/explain", body)
	if a.StatusCode != 200 {
		b.Fatalf("%s: %s %s", body, a.Status, a.body)
	}
	b.ok(json.Unmarshal(a.body, &e))
	if e.Text == "" || strings.ContainsAny(e.Text, "\n%") {
		b.Errorf("%s: the text is %q", body, e.Text)
	}
	return e
}

// TestExplain: a request does what its explanation says, for text, tokens and chats. To explain changes
// no figure of the cache.
func TestExplain(t *testing.T) {
	b := start(t, setup{})
	long := strings.Repeat("What is light? ", 20)
	for _, r := range []struct{ path, body, why string }{
		{"/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1}`, long), "never stored"},
		{"/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1}`, long), "whole"},
		{"/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1}`, long[:100]+"and so on and so on and so on and so on"), "unaligned"},
		{"/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1,"cache_salt":"s"}`, long), "never stored"},
		{"/v1/completions", `{"prompt":[5,6,7],"max_tokens":1}`, "whole"}, // it has no whole page
		{"/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1,"echo":true,"logprobs":1}`, long), "whole"},
		{"/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"max_tokens":1}`, long), "never stored"},
		{"/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"max_tokens":1}`, long), "whole"},
	} {
		before := b.stats().Scheduler.Cache
		e := b.explained(r.body)
		if after := b.stats().Scheduler.Cache; after != before {
			t.Errorf("%s: the cache was %+v, is %+v", r.body, before, after)
		}
		u := b.ask(r.path, r.body).Usage
		if e.PromptTokens != u.Prompt || e.ComputedTokens != u.Prompt-u.Details.Cached || e.Why != r.why || e.CachedByTier["device"] != e.MatchedTokens {
			t.Errorf("%s: %d of %d tokens were cached: %+v", r.body, u.Details.Cached, u.Prompt, e)
		}
	}
	b.do("POST", "/v1/cache/flush", "")
	if e := b.explained(fmt.Sprintf(`{"prompt":%q}`, long)); e.Why != "flushed" || e.ComputedTokens != e.PromptTokens {
		t.Errorf("after a flush: %+v", e)
	}
	b.quiet()
}

// TestExplainEviction: the reason of a removal, and its age.
func TestExplainEviction(t *testing.T) {
	b := start(t, setup{CPU: cpu.Config{KVTokens: 512}})
	first := fmt.Sprintf(`{"prompt":%q,"max_tokens":1}`, strings.Repeat("What is light? ", 20))
	b.ask("/v1/completions", first)
	for i := range 8 {
		b.ask("/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1}`, strings.Repeat(fmt.Sprint("Colour ", i), 20)))
	}
	e := b.explained(first)
	if e.Why != "evicted" || e.Removed == nil || e.Removed.Reason != "capacity" || e.Removed.Policy != "lru" || !strings.Contains(e.Text, "removed to make room (policy lru)") {
		t.Errorf("%+v", e)
	}
}

// TestExplainTenants: a tenant is told of its own prefixes and of public ones. Its answer is the same
// whether other tenants have its prompt or not.
func TestExplainTenants(t *testing.T) {
	b := start(t, setup{Server: Config{Keys: twoTenants}})
	as := func(key, body string) explanation {
		t.Helper()
		b.key = key
		return b.explained(body)
	}
	run := func(key, body string) {
		t.Helper()
		b.key = key
		b.ask("/v1/completions", body)
	}
	prompt := strings.Repeat("What is light? ", 12)
	secret, shared := fmt.Sprintf(`{"prompt":%q,"max_tokens":1}`, prompt), fmt.Sprintf(`{"prompt":%q,"max_tokens":1,"cache_salt":"shared:x"}`, prompt)
	public := fmt.Sprintf(`{"prompt":%q,"max_tokens":1,"coppice":{"public_tokens":32}}`, prompt+"and colour")
	never := as("secret-of-b", secret)
	run("secret-of-a", secret)
	for _, key := range []string{"secret-of-b", "secret-of-root"} {
		if e := as(key, secret); e.Text != never.Text || e.Why != never.Why || e.MatchedTokens != 0 {
			t.Errorf("%s is told what tenant a has: %+v", key, e)
		}
	}
	if e := as("second-of-a", secret); e.ComputedTokens != 1 {
		t.Errorf("tenant a's own prefix: %+v", e)
	}
	run("secret-of-a", shared)
	run("secret-of-a", public)
	if e := as("secret-of-b", shared); e.ComputedTokens != 1 {
		t.Errorf("a shared salt: %+v", e)
	}
	if e := as("secret-of-b", public); e.MatchedTokens != 32 || e.Why != "never stored" {
		t.Errorf("a public prefix: %+v", e)
	}
	b.key = ""
	b.refused("POST", "/v1/cache/explain", secret, 401, "missing_api_key")
}

// TestExplainRefuses: what can't be run is not explained.
func TestExplainRefuses(t *testing.T) {
	b := start(t, setup{Server: Config{MaxChoices: 4}})
	for _, tc := range []struct {
		body, code string
		status     int
	}{
		{`{"prompt":["a","b"]}`, "invalid_value", 400}, {`{"prompt":""}`, "empty_prompt", 400}, {`{"prompt":"x","model":"other"}`, "model_not_found", 404},
		{`{"prompt":[99999999]}`, "invalid_value", 400}, {`{"prompt":[` + strings.Repeat("1,", 6000) + `1]}`, "context_length_exceeded", 400},
		{`{"prompt":"` + strings.Repeat("1.", 9000) + `"}`, "context_length_exceeded", 400}, {`{"prompt":"x","n":9}`, "too_many_choices", 400}, {`{"prompt":"x","foo":1}`, "unknown_parameter", 400},
	} {
		b.refused("POST", "/v1/cache/explain", tc.body, tc.status, tc.code)
	}
	b.refused("GET", "/v1/cache/explain", "", 405, "method_not_allowed")
	b.quiet()
}
