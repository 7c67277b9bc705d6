package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

func TestModels(t *testing.T) {
	p := serve(t)
	ctx := within(t)
	list, err := p.client.Models.List(ctx)
	if err != nil || len(list.Data) != 1 || list.Object != "list" {
		t.Fatalf("models %+v, %v", list, detail(err))
	}
	m := list.Data[0]
	if m.ID != "nano" || m.Object != "model" || m.OwnedBy != "coppice" || m.Created == 0 {
		t.Errorf("model %s", m.RawJSON())
	}
	if n := extra[int](t, m.RawJSON(), "max_model_len"); n != 4096 {
		t.Errorf("max_model_len %d", n)
	}
	one, err := p.client.Models.Get(ctx, "nano")
	if err != nil || one.RawJSON() != m.RawJSON() {
		t.Errorf("model %v, %v", one, detail(err))
	}
	n := 0
	for all := p.client.Models.ListAutoPaging(ctx); all.Next(); n++ {
	}
	if n != 1 {
		t.Errorf("%d models page by page", n)
	}
	named := serve(t, "--model-name", "org/light-1b")
	if got, err := named.client.Models.Get(ctx, "org/light-1b"); err != nil || got.ID != "org/light-1b" {
		t.Errorf("a name with a slash: %v, %v", got, detail(err))
	}
	if got, err := named.client.Completions.New(ctx, openai.CompletionNewParams{Model: "org/light-1b", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("light")}}); err != nil || got.Model != "org/light-1b" {
		t.Errorf("completion by that name: %v, %v", got, detail(err))
	}
}

// TestTokenize checks that the routes return the tokens of the library, which are also those of
// generation.
func TestTokenize(t *testing.T) {
	p := serve(t)
	ctx := within(t)
	type answer struct {
		Count  int      `json:"count"`
		Most   int      `json:"max_model_len"`
		Tokens []uint32 `json:"tokens"`
		Names  []string `json:"token_strs"`
	}
	const prompt = "What is light? Ünï — 光 \n\tdone"
	var a answer
	if err := p.root.Post(ctx, "tokenize", map[string]any{"model": "nano", "prompt": prompt, "return_token_strs": true}, &a); err != nil {
		t.Fatal(detail(err))
	}
	want := tok.EncodePrompt(nil, prompt)
	if a.Count != len(want) || len(a.Tokens) != len(want) || len(a.Names) != len(want) || a.Most != 4096 {
		t.Fatalf("tokens %+v, want %d", a, len(want))
	}
	for i, id := range want {
		if a.Tokens[i] != uint32(id) {
			t.Errorf("token %d is %d, the library says %d", i, a.Tokens[i], id)
		}
	}
	var back struct{ Prompt string }
	if err := p.root.Post(ctx, "detokenize", map[string]any{"model": "nano", "tokens": a.Tokens[1:]}, &back); err != nil || back.Prompt != prompt {
		t.Errorf("back it is %q, %v", back.Prompt, detail(err))
	}
	var plain answer
	if err := p.root.Post(ctx, "tokenize", map[string]any{"prompt": prompt, "add_special_tokens": false}, &plain); err != nil || plain.Count != a.Count-1 || plain.Names != nil {
		t.Errorf("without special tokens %+v, %v", plain, detail(err))
	}
	var chat answer
	messages := []map[string]any{{"role": "user", "content": "What is light?"}}
	if err := p.root.Post(ctx, "tokenize", map[string]any{"messages": messages}, &chat); err != nil {
		t.Fatal(detail(err))
	}
	if u := p.chat(talk(1, openai.UserMessage("What is light?"))).Usage; int64(chat.Count) != u.PromptTokens {
		t.Errorf("a conversation has %d tokens, its request %d", chat.Count, u.PromptTokens)
	}
	refused(t, "neither", p.root.Post(ctx, "tokenize", map[string]any{"model": "nano"}, nil), 400, "prompt", "invalid_value")
	refused(t, "a text as tokens", p.root.Post(ctx, "detokenize", map[string]any{"tokens": "light"}, nil), 400, "tokens", "invalid_type")
}

// TestHealth checks the health routes, and the metrics that dashboards use.
func TestHealth(t *testing.T) {
	p := serve(t)
	ctx := within(t)
	for _, path := range []string{"health", "ready"} {
		var ok struct{ Status string }
		if err := p.root.Get(ctx, path, nil, &ok); err != nil || ok.Status != "ok" {
			t.Errorf("%s: %+v, %v", path, ok, detail(err))
		}
	}
	prompt := words("What is light", 16)
	asked := 0
	for asked < 2 || p.metric("coppice_inter_token_latency_seconds") == 0 { // tokens that arrive together have no gaps
		p.complete(text(prompt, 8), endless)
		asked++
	}
	p.quiet(p.client)
	families := p.metrics()
	for name, kind := range map[string]string{
		"coppice_time_to_first_token_seconds": "HISTOGRAM", "coppice_inter_token_latency_seconds": "HISTOGRAM", "coppice_e2e_request_latency_seconds": "HISTOGRAM",
		"coppice_request_queue_time_seconds": "HISTOGRAM", "coppice_num_requests_running": "GAUGE", "coppice_num_requests_waiting": "GAUGE",
		"coppice_kv_cache_usage_perc": "GAUGE", "coppice_cache_hit_rate": "GAUGE", "coppice_prefix_cache_queries_total": "COUNTER", "coppice_prefix_cache_hits_total": "COUNTER",
		"coppice_prompt_tokens_total": "COUNTER", "coppice_generation_tokens_total": "COUNTER", "coppice_num_preemptions_total": "COUNTER",
		"coppice_evicted_tokens_total": "COUNTER", "coppice_http_requests_total": "COUNTER",
	} {
		f := families[name]
		if f == nil || f.GetType().String() != kind || f.GetHelp() == "" {
			t.Errorf("%s is %v, want a %s with help", name, f, kind)
		}
	}
	figures := p.stats(p.client)
	for name, want := range map[string]float64{
		"coppice_generation_tokens_total": float64(8 * asked), "coppice_prompt_tokens_total": float64(figures.PromptTokens), "coppice_cached_tokens_total": float64(figures.CachedTokens),
		"coppice_time_to_first_token_seconds": float64(asked), "coppice_e2e_request_latency_seconds": float64(asked), "coppice_num_requests_running": 0,
	} {
		if got := p.metric(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if n := p.metric("coppice_inter_token_latency_seconds"); n > float64(7*asked) {
		t.Errorf("%v gaps between %d times 8 tokens", n, asked)
	}
	if n := p.metric("coppice_http_requests_total", "path=/v1/completions", "status=200"); n != float64(asked) {
		t.Errorf("%v completions counted, want %d", n, asked)
	}
}

// TestDocument checks that each path of the OpenAPI document exists and accepts exactly the documented
// methods.
func TestDocument(t *testing.T) {
	p := serve(t, "--publish", "zmq://127.0.0.1:0") // only a publishing server offers its tokenizer
	var doc struct {
		OpenAPI string `json:"openapi"`
		Info    struct{ Title, Version string }
		Paths   map[string]map[string]json.RawMessage
	}
	if err := p.root.Get(within(t), "openapi.json", nil, &doc); err != nil {
		t.Fatal(detail(err))
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.") || doc.Info.Title == "" || len(doc.Paths) < 12 {
		t.Errorf("document %s, %+v, %d paths", doc.OpenAPI, doc.Info, len(doc.Paths))
	}
	for path, methods := range doc.Paths {
		for _, method := range []string{"get", "post", "delete", "put", "patch"} {
			req, err := http.NewRequestWithContext(within(t), strings.ToUpper(method), p.url+strings.Replace(path, "{id}", "nano", 1), nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			_, says := methods[method]
			switch takes := resp.StatusCode != http.StatusMethodNotAllowed; {
			case takes != says:
				t.Errorf("%s %s: status %d, and the document says %v", method, path, resp.StatusCode, says)
			case resp.StatusCode == http.StatusNotFound && path != "/debug/pprof/" && !strings.Contains(string(body), "response_not_found") || resp.StatusCode >= 500:
				t.Errorf("%s %s: status %d: %s", method, path, resp.StatusCode, body)
			}
			if says && resp.StatusCode != http.StatusUnsupportedMediaType { // common to all routes with a body, so not documented
				var responses struct{ Responses map[string]any }
				if err := json.Unmarshal(methods[method], &responses); err != nil {
					t.Fatal(err)
				}
				if _, ok := responses.Responses[itoa(int64(resp.StatusCode))]; !ok {
					t.Errorf("%s %s: status %d is none of the document's", method, path, resp.StatusCode)
				}
			}
		}
	}
}

// TestRequestID checks that the caller's request ID is in the response and in the log, and that a
// request without one gets one.
func TestRequestID(t *testing.T) {
	p := serve(t)
	var resp *http.Response
	p.complete(text("light", 2), option.WithHeader("X-Request-Id", "a-request-of-mine"), option.WithResponseInto(&resp))
	if got := resp.Header.Get("X-Request-Id"); got != "a-request-of-mine" {
		t.Errorf("X-Request-Id is %q", got)
	}
	p.until("it is in the log", func() bool { return strings.Contains(p.log.String(), `"request":"a-request-of-mine"`) })
	p.complete(text("light", 2), option.WithResponseInto(&resp))
	if got := resp.Header.Get("X-Request-Id"); len(got) < 8 || got == "a-request-of-mine" {
		t.Errorf("X-Request-Id is %q", got)
	}
	if strings.Contains(p.log.String(), "prompt\":\"light") {
		t.Error("the log has prompts in it")
	}
}

// TestProfiles checks that profiles are available if they are enabled.
func TestProfiles(t *testing.T) {
	if status := serve(t).status("/debug/pprof/"); status != http.StatusNotFound {
		t.Errorf("without --pprof status %d", status)
	}
	p := serve(t, "--pprof", "COPPICE_API_KEY=a-secret-of-one", "--write-timeout", "200ms")
	if status := p.status("/debug/pprof/"); status != http.StatusUnauthorized {
		t.Errorf("without a key status %d", status)
	}
	_, root := p.as("a-secret-of-one")
	var profile []byte
	if err := root.Get(within(t), "debug/pprof/goroutine?debug=1", nil, &profile); err != nil || !strings.Contains(string(profile), "goroutine profile:") {
		t.Errorf("goroutines: %.80q, %v", profile, detail(err))
	}
	// This one sends nothing for longer than the write timeout of a client.
	var cpu []byte
	if err := root.Get(within(t), "debug/pprof/profile?seconds=1", nil, &cpu); err != nil || len(cpu) == 0 {
		t.Errorf("a profile of a second: %d bytes, %v", len(cpu), detail(err))
	}
}
