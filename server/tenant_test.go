package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

var twoTenants = []Key{{Secret: "secret-of-a", Tenant: "a"}, {Secret: "secret-of-b", Tenant: "b"}, {Secret: "second-of-a", Tenant: "a"}, {Secret: "secret-of-root", Tenant: "root", Admin: true}}

// TestTenantsShareNothing: equal prompts of two tenants are computed twice, unless both give the
// same shared salt.
func TestTenantsShareNothing(t *testing.T) {
	b := start(t, setup{Server: Config{Keys: twoTenants}})
	prompt := strings.Repeat("What is light? ", 8)
	cached := func(key, salt string) int {
		t.Helper()
		b.key = key
		u := b.ask("/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1,"cache_salt":%q}`, prompt, salt)).Usage
		if u.Details.Cached != 0 && u.Details.Cached != u.Prompt-1 && u.Details.Cached < u.Prompt-16 {
			t.Errorf("%d of %d tokens cached", u.Details.Cached, u.Prompt)
		}
		return u.Details.Cached
	}
	for _, tc := range []struct {
		key, salt string
		hit       bool
	}{
		{"secret-of-a", "", false}, {"secret-of-a", "", true}, {"second-of-a", "", true},
		{"secret-of-b", "", false}, {"secret-of-b", "", true}, {"secret-of-root", "", false},
		{"secret-of-a", "x", false}, {"secret-of-b", "x", false}, {"secret-of-a", "x", true}, {"secret-of-a", "y", false},
		{"secret-of-a", "shared:x", false}, {"secret-of-b", "shared:x", true}, {"secret-of-b", "shared:y", false},
	} {
		if n := cached(tc.key, tc.salt); n > 0 != tc.hit {
			t.Errorf("tenant of %q with salt %q: %d tokens cached, want some: %v", tc.key, tc.salt, n, tc.hit)
		}
	}
}

// TestNamespacesAreApart: no two pairs of tenant and salt have the same namespace.
func TestNamespacesAreApart(t *testing.T) {
	seen := map[kv.Namespace][2]string{}
	names := []string{"", "a", "b", "ab", "s", "t", "\x00", "a\x00", "\x01a", "\x01", "ta", "shared", strings.Repeat("a", 200), "\xc8\x01"}
	for _, tenant := range names {
		for _, salt := range names {
			ns := conversation.Namespace(tenant, salt)
			if other, ok := seen[ns]; ok {
				t.Errorf("%q and %q have one namespace", other, [2]string{tenant, salt})
			}
			seen[ns] = [2]string{tenant, salt}
		}
		if shared := conversation.Namespace(tenant, "shared:x"); shared != conversation.Namespace("", "shared:x") || seen[shared] != [2]string{} {
			t.Errorf("tenant %q: shared salt gives %q", tenant, shared)
		}
	}
}

// TestKeys: callers without a key, or without an admin's, get an error that says so.
func TestKeys(t *testing.T) {
	b := start(t, setup{Server: Config{Keys: twoTenants, Pprof: true, Page: true}})
	for _, tc := range []struct {
		key, method, path string
		status            int
	}{
		{"", "GET", "/v1/models", 401}, {"wrong", "GET", "/v1/models", 401}, {"secret-of-a ", "GET", "/v1/models", 200}, {"secret-of-", "GET", "/v1/models", 401},
		{"", "GET", "/health", 200}, {"", "GET", "/ready", 200}, {"", "GET", "/metrics", 200}, {"", "GET", "/", 200},
		{"", "GET", "/v1/view", 401}, {"", "GET", "/v1/cache/stats", 401},
		{"secret-of-a", "GET", "/v1/cache/stats", 200}, {"secret-of-a", "GET", "/v1/cache/tree", 200}, {"secret-of-a", "GET", "/v1/cache/tree?tokens=4", 403},
		{"secret-of-a", "POST", "/v1/cache/flush", 403}, {"secret-of-a", "POST", "/v1/cache/pin", 403}, {"secret-of-a", "DELETE", "/v1/cache/pin", 403}, {"secret-of-a", "GET", "/debug/pprof/", 403},
		{"secret-of-root", "POST", "/v1/cache/flush", 200}, {"secret-of-root", "GET", "/v1/cache/tree?tokens=4", 200}, {"secret-of-root", "GET", "/debug/pprof/cmdline", 200},
	} {
		b.key = tc.key
		if a := b.do(tc.method, tc.path, ""); a.StatusCode != tc.status {
			t.Errorf("%q %s %s: %s %s, want %d", tc.key, tc.method, tc.path, a.Status, a.body, tc.status)
		} else if (a.StatusCode == 401) != (a.Header.Get("WWW-Authenticate") != "") {
			t.Errorf("%s: WWW-Authenticate %q", tc.path, a.Header.Get("WWW-Authenticate"))
		}
	}
	b.key = "secret-of-a"
	b.ask("/v1/completions", `{"prompt":"a secret text of a tenant","max_tokens":1}`)
	if a := b.do("GET", "/v1/cache/tree", ""); strings.Contains(string(a.body), `"first"`) || strings.Contains(string(a.body), `"text"`) {
		t.Errorf("a tenant sees %s", a.body)
	}
}

// TestBadKeys: faulty keys are configuration errors, which do not reveal the secrets.
func TestBadKeys(t *testing.T) {
	err := validateKeys([]Key{{Secret: "hush-hush", Tenant: ""}, {Secret: "tiny", Tenant: "x"}, {Secret: "white space", Tenant: "y"}, {Secret: "hush-hush", Tenant: "z"}, {Secret: "hush-hush-hush", Tenant: "caf\xe9"}})
	if err == nil || strings.Count(err.Error(), "\n") != 4 || strings.Contains(err.Error(), "hush") {
		t.Errorf("%v", err)
	}
	if s := fmt.Sprintf("%v %+v %#v", twoTenants[0], twoTenants[0], twoTenants[0]); strings.Contains(s, "secret-of") {
		t.Errorf("printed %s", s)
	}
}

// slow is a device whose steps take a fifth of a second of real time, so that requests run as
// long as a test needs them.
func slow() *sim.Config {
	p, err := sim.ProfileByName("cpu2")
	if err != nil {
		panic(err)
	}
	p.Eff.Step = 0.2
	return &sim.Config{Profile: p, Pages: 256, MaxSlots: 4, MaxRows: 4}
}

// TestTooMany: a request refused by a limit gets a Retry-After.
func TestTooMany(t *testing.T) {
	b := start(t, setup{Sim: slow(), Server: Config{Keys: twoTenants}, Node: coppice.Config{MaxRequests: 3, Scheduler: scheduler.Config{
		MaxRunning: 1, Tenants: map[string]scheduler.TenantConfig{"b": {MaxQueued: 1}}}}})
	b.key = "secret-of-a"
	hold := b.hold(1)
	b.until(func(s *coppice.Stats) bool { return s.Scheduler.Running == 1 })
	b.key = "secret-of-b"
	second := b.hold(1)
	b.until(func(s *coppice.Stats) bool { return s.Scheduler.Running == 1 && s.Scheduler.Waiting == 1 })
	// b has one waiting request, which is its limit.
	body := `{"prompt":"x","max_tokens":4,"ignore_eos":true}`
	b.refused("POST", "/v1/completions", body, 429, "rate_limit_exceeded")
	b.key = "secret-of-a"
	third := b.hold(1)
	b.until(func(s *coppice.Stats) bool { return s.Scheduler.Waiting == 2 })
	for range 3 {
		a := b.refused("POST", "/v1/completions", body, 429, "server_busy")
		if after, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || after < minRetry || after > maxRetry { // TestPace checks the exact value
			t.Errorf("Retry-After %q", a.Header.Get("Retry-After"))
		}
	}
	// If one of several prompts is refused, none is answered.
	b.refused("POST", "/v1/completions", `{"prompt":["x","y"],"max_tokens":4}`, 429, "server_busy")
	hold()
	second()
	third()
	b.quiet()
}

// TestRetryTimes: each refused caller gets its own expected end.
func TestRetryTimes(t *testing.T) {
	var p retryTimes
	now := time.Unix(1000, 0)
	if got := p.after(now); got != 1 {
		t.Errorf("without a request that ended: %d s, want 1", got)
	}
	p = retryTimes{}
	for range 50 {
		now = now.Add(4 * time.Second)
		p.ended(now)
	}
	for i, want := range []int{4, 8, 12} {
		if got := p.after(now); got != want {
			t.Errorf("refused %d: %d s, want %d", i, got, want)
		}
	}
	if got := p.after(now.Add(time.Minute)); got != 4 {
		t.Errorf("a minute later: %d s, want 4", got)
	}
	for range 100 {
		p.after(now)
	}
	if got := p.after(now); got != maxRetry {
		t.Errorf("after a hundred: %d s, want %d", got, maxRetry)
	}
}

// hold opens this many streams, which run until the returned function aborts them.
func (b *bed) hold(streams int) (release func()) {
	b.Helper()
	var stop []func()
	for range streams {
		req, err := http.NewRequest("POST", b.url+"/v1/completions", strings.NewReader(`{"prompt":"hold","max_tokens":1000,"ignore_eos":true,"stream":true}`))
		b.ok(err)
		req.Header.Set("Content-Type", "application/json")
		if b.key != "" {
			req.Header.Set("Authorization", "Bearer "+b.key)
		}
		ctx, cancel := contextOf(b)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if res, err := b.client.Do(req.WithContext(ctx)); err == nil {
				drainBody(res)
			}
		}()
		stop = append(stop, func() { cancel(); <-done })
	}
	return func() {
		for _, f := range stop {
			f()
		}
	}
}

// TestLengthStatisticsPerTenant: a tenant can't see the lengths of others' prompts, neither in the tree
// nor on the page, and its streams can't keep an admin from the page.
func TestLengthStatisticsPerTenant(t *testing.T) {
	b := start(t, setup{Server: Config{Keys: twoTenants, Page: true}})
	for key, words := range map[string]int{"secret-of-a": 40, "secret-of-b": 11} {
		b.key = key
		b.ask("/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1}`, strings.Repeat("light ", words)))
		b.ask("/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1,"cache_salt":"x"}`, strings.Repeat("glass ", words)))
	}
	spaces := func(key string) (tokens, nodes int) {
		b.key = key
		var tree struct {
			Nodes []struct{ Tokens, Parent int }
		}
		b.ok(json.Unmarshal(b.do("GET", "/v1/cache/tree", "").body, &tree))
		for _, n := range tree.Nodes {
			tokens += n.Tokens
		}
		return tokens, len(tree.Nodes)
	}
	a, _ := spaces("secret-of-a")
	other, _ := spaces("secret-of-b")
	if all, nodes := spaces("secret-of-root"); a == 0 || other == 0 || a+other != all || a <= other || nodes < 4 {
		t.Errorf("a sees %d tokens, b %d, an admin %d", a, other, all)
	}
	b.key = "secret-of-a"
	var page struct {
		Running, Waiting, Finished []any
		Tree                       struct{ Shown []any }
	}
	b.ok(json.Unmarshal(b.do("GET", "/v1/view", "").body, &page))
	if len(page.Running)+len(page.Waiting)+len(page.Finished)+len(page.Tree.Shown) != 0 {
		t.Errorf("%+v", page)
	}
	ctx, leave := context.WithCancel(t.Context())
	for range 70 { // more than MaxWatchers
		req, err := http.NewRequestWithContext(ctx, "GET", b.url+"/v1/view/stream", nil)
		b.ok(err)
		req.Header.Set("Authorization", "Bearer secret-of-a")
		res, err := b.client.Do(req)
		b.ok(err)
		defer res.Body.Close()
	}
	b.key = "secret-of-root"
	a1 := b.do("GET", "/v1/view", "")
	b.ok(json.Unmarshal(a1.body, &page))
	if a1.StatusCode != 200 || len(page.Finished) != 4 || len(page.Tree.Shown) == 0 {
		t.Errorf("an admin next to 70 streams: %s %.300s", a1.Status, a1.body)
	}
	leave()
}
