package server

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// cachedOf sends a prompt of 65 tokens (four pages of 16 and one token) that begins with the token
// first. It returns how many of its tokens were cached. more has further JSON fields of the
// request, each with a comma before it.
func (b *bed) cachedOf(first int, more string) int {
	b.Helper()
	tokens := make([]int, 65)
	for i := range tokens {
		tokens[i] = (first+i)%50 + 10
	}
	tokens[0] = first
	prompt, err := json.Marshal(tokens)
	b.ok(err)
	return b.ask("/v1/completions", fmt.Sprintf(`{"prompt":%s,"max_tokens":1,"ignore_eos":true%s}`, prompt, more)).Usage.Details.Cached
}

// TestEvictionIsChosen: in a pool for two prompts, the policy decides which one a third prompt
// replaces.
func TestEvictionIsChosen(t *testing.T) {
	type ask struct {
		first    int
		priority int
	}
	for _, tc := range []struct {
		cfg  scheduler.Config
		asks []ask
		kept int // prompt 1 or 2
	}{
		{scheduler.Config{}, []ask{{1, 0}, {2, 0}, {1, 0}}, 1},
		{scheduler.Config{Eviction: radixcache.FIFO}, []ask{{1, 0}, {2, 0}, {1, 0}}, 2},
		{scheduler.Config{Eviction: radixcache.MRU}, []ask{{1, 0}, {2, 0}}, 1},
		{scheduler.Config{Eviction: radixcache.LFU}, []ask{{1, 0}, {1, 0}, {2, 0}}, 1},
		{scheduler.Config{Eviction: radixcache.Priority}, []ask{{1, 5}, {2, 0}}, 1},
		{scheduler.Config{}, []ask{{1, 5}, {2, 0}}, 2},
		{scheduler.Config{Eviction: radixcache.SLRU}, []ask{{1, 0}, {1, 0}, {2, 0}, {2, 0}}, 2},
		{scheduler.Config{Eviction: radixcache.SLRU, SLRUHits: 2}, []ask{{1, 0}, {1, 0}, {1, 0}, {2, 0}, {2, 0}}, 1},
		{scheduler.Config{Eviction: radixcache.SLRU, SLRUHits: 1}, []ask{{1, 0}, {1, 0}, {1, 0}, {2, 0}, {2, 0}}, 2},
	} {
		b := start(t, setup{Sim: &sim.Config{Pages: 11}, Node: coppice.Config{Scheduler: tc.cfg}})
		for _, a := range tc.asks {
			b.cachedOf(a.first, fmt.Sprintf(`,"priority":%d`, a.priority))
		}
		b.cachedOf(3, "")
		kept := b.cachedOf(tc.kept, "")
		if other := b.cachedOf(3-tc.kept, ""); kept/16*16 != 64 || other >= 48 {
			t.Errorf("%v, %d hits, after %v: %d tokens of prompt %d are cached, %d of the other",
				tc.cfg.Eviction, tc.cfg.SLRUHits, tc.asks, kept, tc.kept, other)
		}
	}
}

// TestCacheTTL: with a TTL shorter than any gap between requests nothing is found again.
func TestCacheTTL(t *testing.T) {
	for ttl, want := range map[time.Duration]int{0: 64, 1: 0, time.Hour: 64} {
		b := start(t, setup{Sim: &sim.Config{Pages: 64}, Node: coppice.Config{Scheduler: scheduler.Config{CacheTTL: ttl}}})
		b.cachedOf(1, "")
		if got := b.cachedOf(1, ""); got/16*16 != want {
			t.Errorf("kept for %v: %d tokens cached, want %d", ttl, got, want)
		}
	}
}

// TestQuotaOfANamespace: a tenant's prefixes beyond its quota are evicted at once, even if there
// is room, and other tenants' stay.
func TestQuotaOfANamespace(t *testing.T) {
	b := start(t, setup{
		Server: Config{Keys: twoTenants}, Sim: &sim.Config{Pages: 64},
		Node: coppice.Config{Scheduler: scheduler.Config{Quotas: map[kv.Namespace]int{conversation.Namespace("a", ""): 32}}},
	})
	for key, want := range map[string]int{"secret-of-a": 0, "secret-of-b": 64} {
		b.key = key
		b.cachedOf(1, "")
		b.cachedOf(2, "")
		if got := b.cachedOf(1, "") / 16 * 16; got != want {
			t.Errorf("%s: %d tokens cached, want %d", key, got, want)
		}
	}
}

// TestLeastOfANamespace: a tenant's reserved part stays while other tenants' blocks can be
// evicted, and goes only when another tenant's request has no other room.
func TestLeastOfANamespace(t *testing.T) {
	for least, want := range map[int]int{0: 0, 32: 32, 64: 64} {
		b := start(t, setup{
			Server: Config{Keys: twoTenants}, Sim: &sim.Config{Pages: 11},
			Node: coppice.Config{Scheduler: scheduler.Config{MinQuotas: map[kv.Namespace]int{conversation.Namespace("a", ""): least}}},
		})
		b.key = "secret-of-a"
		b.cachedOf(1, "")
		b.key = "secret-of-b"
		for first := 2; first < 6; first++ {
			b.cachedOf(first, "")
		}
		b.key = "secret-of-a"
		if got := b.cachedOf(1, "") / 16 * 16; got != want {
			t.Errorf("of %d tokens to keep %d are cached, want %d", least, got, want)
		}
		b.key = "secret-of-b"
		tokens, err := json.Marshal(make([]int, 11*16-1)) // the whole pool
		b.ok(err)
		b.ask("/v1/completions", fmt.Sprintf(`{"prompt":%s,"max_tokens":1,"ignore_eos":true}`, tokens))
	}
}

// TestPublicTokens: another tenant finds the part of a prompt declared public, and no more.
func TestPublicTokens(t *testing.T) {
	b := start(t, setup{Server: Config{Keys: twoTenants}, Sim: &sim.Config{Pages: 64}})
	for i, tc := range []struct {
		more string
		want int
	}{{``, 0}, {`,"coppice":{"public_tokens":40}`, 32}, {`,"coppice":{"public_tokens":1000}`, 64}} {
		first := 3 + i
		b.key = "secret-of-a"
		b.cachedOf(first, tc.more)
		b.key = "secret-of-b"
		if got := b.cachedOf(first, tc.more) / 16 * 16; got != tc.want {
			t.Errorf("%s: %d tokens cached, want %d", tc.more, got, tc.want)
		}
	}
	b.refused("POST", "/v1/completions", `{"prompt":"x","coppice":{"public_tokens":-1}}`, 400, "invalid_value")
}

// TestToolTurnsAreTold: the policy session hears of each answer to a named session that calls tools, streamed or not and on each
// wire, and of no other answer; another policy hears of none.
func TestToolTurnsAreTold(t *testing.T) {
	const (
		tools    = `"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"a":{"enum":[1,2]}},"required":["a"],"additionalProperties":false}}}],`
		ask      = `{"messages":[{"role":"user","content":"x"}],"max_tokens":200,` + tools
		named    = ask + `"tool_choice":"required","prompt_cache_key":"s"`
		messages = `{"messages":[{"role":"user","content":"x"}],"max_tokens":200,"tool_choice":{"type":"tool","name":"f"},` +
			`"tools":[{"name":"f","input_schema":{"properties":{"a":{"enum":[1,2]}},"required":["a"],"additionalProperties":false}}]}`
		responses = `{"input":"x","max_output_tokens":200,"prompt_cache_key":"r","tool_choice":"required",` +
			`"tools":[{"type":"function","name":"f","parameters":{"properties":{"a":{"enum":[1,2]}},"required":["a"],"additionalProperties":false}}]}`
	)
	for policy, told := range map[radixcache.Policy]int{radixcache.Session: 4, radixcache.LRU: 0} {
		b := start(t, setup{Node: coppice.Config{Scheduler: scheduler.Config{Eviction: policy}}})
		for _, r := range []struct{ path, header, body string }{
			{"/v1/chat/completions", "", named + `}`},
			{"/v1/chat/completions", "", named + `,"stream":true}`},
			{"/v1/chat/completions", "", ask + `"tool_choice":"required"}`},                    // of no session
			{"/v1/chat/completions", "", ask + `"tool_choice":"none","prompt_cache_key":"s"}`}, // calls none
			{"/v1/messages", "m", messages},
			{"/v1/responses", "", responses},
		} {
			b.session = r.header
			if a := b.do("POST", r.path, r.body); a.StatusCode != 200 {
				t.Fatalf("%s: %d %s", r.path, a.StatusCode, a.body)
			}
		}
		b.until(func(s *coppice.Stats) bool { return s.Scheduler.ToolTurns >= uint64(told) }) // the client has its answer before
		_, text, _ := strings.Cut(b.metricsText(), `coppice_tool_turns_total{model_name="nano"} `)
		if text, _, _ = strings.Cut(text, "\n"); text != strconv.Itoa(told) {
			t.Errorf("%v: told of %q turns, want %d", policy, text, told)
		}
	}
}
