package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/openai/openai-go/v3/option"
)

// TestOneKey sets a single key by the environment, which unlike a flag is not visible to other users.
func TestOneKey(t *testing.T) {
	p := serve(t, "COPPICE_API_KEY=a-secret-of-one")
	ctx := within(t)
	_, err := p.client.Models.List(ctx)
	if e := refused(t, "a wrong key", err, 401, "", "invalid_api_key"); e != nil && e.Response.Header.Get("WWW-Authenticate") == "" {
		t.Error("401 without WWW-Authenticate")
	}
	_, err = p.client.Models.List(ctx, option.WithHeaderDel("Authorization"))
	refused(t, "no key", err, 401, "", "missing_api_key")
	_, err = p.client.Completions.New(ctx, text("light", 4))
	refused(t, "completion", err, 401, "", "invalid_api_key")
	s := p.client.Completions.NewStreaming(ctx, text("light", 4))
	defer s.Close()
	if s.Next() {
		t.Error("a stream without a key has something in it")
	}
	refused(t, "stream", s.Err(), 401, "", "invalid_api_key")
	p.client, p.root = p.as("a-secret-of-one")
	if page, err := p.client.Models.List(ctx); err != nil || len(page.Data) != 1 {
		t.Errorf("with the key %v, %v", page, err)
	}
	p.complete(text("light", 4))
	for _, open := range []string{"/health", "/ready", "/metrics", "/openapi.json"} {
		if status := p.status(open); status != 200 {
			t.Errorf("%s without a key: status %d", open, status)
		}
	}
	p.quiet(p.client)
}

// TestTenants checks that two keys of different tenants share no prefix unless they use the same salt,
// and that two keys of one tenant do.
func TestTenants(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	keys := "# for a test\nacme: acme-secret-1 admin\nacme: acme-secret-2\n\nzoo: zoo-secret-1\n"
	if err := os.WriteFile(file, []byte(keys), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--api-key-file", file)
	ctx := within(t)
	acme, _ := p.as("acme-secret-1")
	acme2, _ := p.as("acme-secret-2")
	zoo, _ := p.as("zoo-secret-1")
	prompt := words("What is light", 20)
	cached := func(key string, opts ...option.RequestOption) int64 {
		t.Helper()
		p.client, _ = p.as(key)
		return p.complete(text(prompt, 4), opts...).Usage.PromptTokensDetails.CachedTokens
	}
	most := int64(len(tok.EncodePrompt(nil, prompt)) - 16)
	if n := cached("acme-secret-1"); n != 0 {
		t.Errorf("%d tokens cached of nothing", n)
	}
	if n := cached("acme-secret-2"); n < most {
		t.Errorf("another key of the tenant: %d cached, want %d", n, most)
	}
	if n := cached("zoo-secret-1"); n != 0 {
		t.Errorf("another tenant: %d cached", n)
	}
	if n := cached("zoo-secret-1"); n < most {
		t.Errorf("and then %d, want %d of its own", n, most)
	}
	own, shared := option.WithJSONSet("cache_salt", "blue"), option.WithJSONSet("coppice", map[string]any{"cache_salt": "shared:blue"})
	if n := cached("acme-secret-1", own); n != 0 {
		t.Errorf("with a salt of its own %d cached", n)
	}
	if n := cached("zoo-secret-1", own); n != 0 {
		t.Errorf("with the same words as salt another tenant has %d cached", n)
	}
	if n := cached("acme-secret-1", shared); n != 0 {
		t.Errorf("with a new shared salt %d cached", n)
	}
	if n := cached("zoo-secret-1", shared); n < most {
		t.Errorf("with a shared salt %d cached, want %d", n, most)
	}
	if f := p.stats(acme); f.Namespaces != 5 {
		t.Errorf("%d namespaces, want 5", f.Namespaces)
	}

	for what, err := range map[string]error{
		"flush": zoo.Post(ctx, "cache/flush", nil, nil), "flush by no admin of the tenant": acme2.Post(ctx, "cache/flush", nil, nil),
		"pin":     zoo.Post(ctx, "cache/pin", map[string]any{"prompt": prompt, "seconds": 1}, nil),
		"prompts": zoo.Get(ctx, "cache/tree?tokens=4", nil, nil),
	} {
		refused(t, what, err, 403, "", "admin_only")
	}
	if err := acme.Post(ctx, "cache/flush", nil, nil); err != nil {
		t.Errorf("flush by an admin: %v", detail(err))
	}
	if n := p.metric("coppice_tenant_requests_total", "tenant=zoo"); n != 4 {
		t.Errorf("metrics count %v requests of zoo, want 4", n)
	}
	if n := p.metric("coppice_tenant_cached_tokens_total", "tenant=acme"); int64(n) < most {
		t.Errorf("metrics count %v cached tokens of acme", n)
	}
	p.quiet(acme)
}
