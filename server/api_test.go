package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/events/bundle"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// TestCompletions: an answer is the same whole and streamed, and cached the second time.
func TestCompletions(t *testing.T) {
	b := start(t, setup{})
	prompt := strings.Repeat("What is light? ", 10)
	body := fmt.Sprintf(`{"model":"nano","prompt":%q,"max_tokens":20,"temperature":1,"seed":5,"ignore_eos":true`, prompt)
	first := b.ask("/v1/completions", body+`}`)
	if len(first.Choices) != 1 || first.Choices[0].FinishReason != "length" || len(first.Choices[0].Text) < 10 || first.Object != "text_completion" || first.Model != "nano" {
		t.Fatalf("%+v", first)
	}
	tokens := len(b.tok.EncodePrompt(nil, prompt))
	if u := first.Usage; u.Prompt != tokens || u.Completion != 20 || u.Total != tokens+20 || u.Details.Cached != 0 {
		t.Errorf("usage %+v", u)
	}
	again := b.ask("/v1/completions", body+`}`)
	if again.Choices[0].Text != first.Choices[0].Text || again.ID == first.ID {
		t.Errorf("the same seed gave %q and %q", first.Choices[0].Text, again.Choices[0].Text)
	}
	if cached := again.Usage.Details.Cached; cached < tokens-16 || cached >= tokens {
		t.Errorf("%d of %d tokens cached the second time", cached, tokens)
	}
	text, usage := "", 0
	for _, c := range b.streamed("/v1/completions", body+`,"stream":true,"stream_options":{"include_usage":true}}`) {
		for _, choice := range c.Choices {
			text += choice.Text
		}
		if c.Usage != nil {
			usage = c.Usage.Completion
		}
	}
	if text != first.Choices[0].Text || usage != 20 {
		t.Errorf("streamed %q with %d tokens, whole %q", text, usage, first.Choices[0].Text)
	}
	b.quiet()
}

// TestChat renders the template, for whole and streamed answers.
func TestChat(t *testing.T) {
	b := start(t, setup{})
	body := `{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Light?"}],"max_completion_tokens":12,"seed":1,"ignore_eos":true`
	whole := b.ask("/v1/chat/completions", body+`}`)
	if m := whole.Choices[0].Message; m.Role != "assistant" || m.Content == "" || whole.Object != "chat.completion" {
		t.Fatalf("%+v", whole)
	}
	if want := len(b.tok.Encode(nil, "<system>Be brief.<user>Light?<assistant>")); whole.Usage.Prompt != want {
		t.Errorf("%d prompt tokens, want %d", whole.Usage.Prompt, want)
	}
	text, role, finish := "", "", ""
	for _, c := range b.streamed("/v1/chat/completions", body+`,"stream":true}`) {
		for _, choice := range c.Choices {
			text += choice.Delta.Content
			role += choice.Delta.Role
			finish += choice.FinishReason
		}
	}
	if text != whole.Choices[0].Message.Content || role != "assistant" || finish != "length" {
		t.Errorf("streamed %q by %q until %q, whole %q", text, role, finish, whole.Choices[0].Message.Content)
	}
}

// TestChoices: n choices per prompt, and several prompts, in the order of their indices.
func TestChoices(t *testing.T) {
	b := start(t, setup{})
	body := `{"prompt":["one two three","four five six","seven eight nine"],"n":2,"max_tokens":8,"temperature":1,"seed":3,"ignore_eos":true,"return_token_ids":true`
	whole := b.ask("/v1/completions", body+`}`)
	if len(whole.Choices) != 6 || whole.Usage.Completion != 48 {
		t.Fatalf("%+v", whole)
	}
	texts := make([]string, 6)
	for i, c := range whole.Choices {
		if c.Index != i || len(c.TokenIDs) != 8 {
			t.Errorf("choice %d: %+v", i, c)
		}
		texts[i] = c.Text
	}
	if texts[0] == texts[1] || texts[0] == texts[2] {
		t.Errorf("choices are alike: %q", texts)
	}
	got := make([]string, 6)
	for _, c := range b.streamed("/v1/completions", body+`,"stream":true}`) {
		for _, choice := range c.Choices {
			got[choice.Index] += choice.Text
		}
	}
	if !slices.Equal(got, texts) {
		t.Errorf("streamed %q, whole %q", got, texts)
	}
	b.refused("POST", "/v1/completions", `{"prompt":"x","n":128,"best_of":128}`, 400, "too_many_choices")
	b.quiet()
}

// TestOutputShape: stops, formats, log-probabilities and echoes reach the node.
func TestOutputShape(t *testing.T) {
	b := start(t, setup{})
	free := b.ask("/v1/completions", `{"prompt":"What is light?","max_tokens":30,"temperature":0,"ignore_eos":true}`).Choices[0].Text
	stop := free[len(free)/2 : len(free)/2+3]
	got := b.ask("/v1/completions", fmt.Sprintf(`{"prompt":"What is light?","max_tokens":30,"temperature":0,"ignore_eos":true,"stop":[%q]}`, stop)).Choices[0]
	if want := free[:strings.Index(free, stop)]; got.Text != want || got.FinishReason != "stop" {
		t.Errorf("with stop %q: %q by %s, want %q", stop, got.Text, got.FinishReason, want)
	}
	chat := b.ask("/v1/chat/completions", `{"messages":[{"role":"user","content":"A colour"}],"max_tokens":200,"seed":1,
		"response_format":{"type":"json_schema","json_schema":{"name":"c","schema":{"type":"object","properties":{"red":{"enum":["a","b"]}},"required":["red"],"additionalProperties":false}}}}`)
	var colour struct{ Red string }
	if text := chat.Choices[0].Message.Content; json.Unmarshal([]byte(text), &colour) != nil || colour.Red == "" {
		t.Errorf("%q is not of the schema", text)
	}
	if text := b.ask("/v1/completions", `{"prompt":"x","max_tokens":40,"regex":"(red|green){2}","seed":2}`).Choices[0].Text; !slices.Contains([]string{"redred", "redgreen", "greenred", "greengreen"}, text) {
		t.Errorf("%q does not match", text)
	}
	logged := b.ask("/v1/completions", `{"prompt":"What is light?","max_tokens":3,"temperature":0,"logprobs":2,"ignore_eos":true,"echo":true}`).Choices[0]
	if !strings.HasPrefix(logged.Text, "What is light?") {
		t.Errorf("echo gave %q", logged.Text)
	}
	var lp struct {
		Tokens []string  `json:"tokens"`
		Values []float64 `json:"token_logprobs"`
	}
	if err := json.Unmarshal(logged.Logprobs, &lp); err != nil || len(lp.Tokens) != len(lp.Values) || len(lp.Tokens) != 3+len(b.tok.EncodePrompt(nil, "What is light?")) {
		t.Errorf("logprobs %s: %v", logged.Logprobs, err)
	}
	ids := b.ask("/v1/completions", `{"prompt":[5,6,7],"max_tokens":2,"ignore_eos":true}`)
	if ids.Usage.Prompt != 3 {
		t.Errorf("%d tokens of 3", ids.Usage.Prompt)
	}
}

// TestSmallEndpoints checks the answer of each.
func TestSmallEndpoints(t *testing.T) {
	b := start(t, setup{Node: coppice.Config{Scheduler: scheduler.Config{PinnedTokens: 256}}})
	get := func(path string) string {
		t.Helper()
		a := b.do("GET", path, "")
		if a.StatusCode != 200 || a.Header.Get("Content-Type") == "" {
			t.Fatalf("%s: %s %s", path, a.Status, a.body)
		}
		return string(a.body)
	}
	for path, want := range map[string]string{
		"/v1/models": `"id":"nano"`, "/v1/models/nano": `"object":"model"`, "/health": `"ok"`, "/ready": `"ok"`,
		"/openapi.json": `"/v1/completions"`, "/metrics": "coppice_num_requests_running",
	} {
		if got := get(path); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s in it", path, got, want)
		}
	}
	if a := b.do("HEAD", "/health", ""); a.StatusCode != 200 || len(a.body) != 0 {
		t.Errorf("HEAD: %s %s", a.Status, a.body)
	}
	if got := get("/metrics"); strings.Contains(got, `status="499"`) {
		t.Errorf("somebody is said to have left: %s", got)
	}
	text := "What is light? It is what we see by, and what we see. 12345"
	var tokens struct {
		Count  int
		Tokens []int
		Strs   []string `json:"token_strs"`
	}
	a := b.do("POST", "/tokenize", fmt.Sprintf(`{"prompt":%q,"add_special_tokens":false,"return_token_strs":true}`, text))
	if err := json.Unmarshal(a.body, &tokens); err != nil || tokens.Count != len(b.tok.Encode(nil, text)) || len(tokens.Strs) != tokens.Count {
		t.Fatalf("%s: %v", a.body, err)
	}
	ids, _ := json.Marshal(tokens.Tokens)
	if a := b.do("POST", "/detokenize", fmt.Sprintf(`{"tokens":%s}`, ids)); !strings.Contains(string(a.body), text) {
		t.Errorf("detokenized %s", a.body)
	}
	prompt := fmt.Sprintf(`{"prompt":%q`, text)
	pin := prompt + `,"seconds":3600}`
	b.refused("POST", "/v1/cache/pin", pin, 400, "not_cached")
	b.ask("/v1/completions", prompt+`,"max_tokens":1}`)
	var pinned struct {
		Tokens int `json:"pinned_tokens"`
	}
	a = b.do("POST", "/v1/cache/pin", pin)
	if err := json.Unmarshal(a.body, &pinned); err != nil || a.StatusCode != 200 || pinned.Tokens == 0 || pinned.Tokens%16 != 0 {
		t.Fatalf("%s %s", a.Status, a.body)
	}
	if got := b.stats().Scheduler.Cache.ProtectedTokens; got != pinned.Tokens {
		t.Errorf("%d tokens protected, %d pinned", got, pinned.Tokens)
	}
	var tree struct{ Nodes []NodeFigures }
	if err := json.Unmarshal([]byte(get("/v1/cache/tree?tokens=8&depth=3&nodes=10")), &tree); err != nil || len(tree.Nodes) == 0 {
		t.Fatalf("%v %+v", err, tree)
	}
	if n := tree.Nodes[0]; n.Pins == 0 || len(n.First) != 8 || n.Text == "" || n.Salted {
		t.Errorf("node %+v", n)
	}
	if a := b.do("DELETE", "/v1/cache/pin", prompt+"}"); a.StatusCode != 200 { // seconds are optional
		t.Errorf("%s %s", a.Status, a.body)
	}
	if a := b.do("POST", "/v1/cache/flush", ""); a.StatusCode != 200 {
		t.Errorf("%s %s", a.Status, a.body)
	}
	var figures map[string]any
	if err := json.Unmarshal([]byte(get("/v1/cache/stats")), &figures); err != nil || figures["requests"] != 1.0 || figures["protected_tokens"] != 0.0 || figures["pool_pages"] != 512.0 {
		t.Errorf("%v %+v", err, figures)
	}
	if u := b.ask("/v1/completions", prompt+`,"max_tokens":1}`).Usage; u.Details.Cached != 0 {
		t.Errorf("%d tokens cached after a flush", u.Details.Cached)
	}
}

// TestRefusals: each fault has its status, code and message.
func TestRefusals(t *testing.T) {
	b := start(t, setup{Server: Config{MaxBodyBytes: 1 << 16, MaxChoices: 4}})
	ok := `{"prompt":"x","max_tokens":1}`
	for _, tc := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"POST", "/v1/completions", `{"prompt":"x","max_tokens":"many"}`, 400, "invalid_type"},
		{"POST", "/v1/completions", `{"prompt":"x"`, 400, "invalid_json"},
		{"POST", "/v1/completions", strings.Repeat("[", 5000), 400, "invalid_json"},
		{"POST", "/v1/completions", `{"prompt":"x","model":"gpt"}`, 404, "model_not_found"},
		{"POST", "/v1/completions", `{"prompt":["x","y","z"],"n":2}`, 400, "too_many_choices"},
		{"POST", "/v1/completions", `{"prompt":[99999999]}`, 400, "invalid_value"},
		{"POST", "/v1/completions", `{"prompt":"` + strings.Repeat("a", 1<<16) + `"}`, 413, "body_too_large"},
		{"POST", "/v1/completions", `{"prompt":""}`, 400, "empty_prompt"},
		{"POST", "/v1/completions", `{"echo":true,"prompt":[5` + strings.Repeat(",5", 4096) + `]}`, 400, "context_length_exceeded"},
		{"POST", "/detokenize", `{"tokens":[5` + strings.Repeat(",5", 4096) + `]}`, 400, "context_length_exceeded"},
		{"POST", "/v1/completions", `{"prompt":"x","regex":"("}`, 400, "invalid_value"},
		{"POST", "/v1/completions", `{"prompt":"x","max_tokens":4000,"ignore_eos":true,"coppice":{"timeout":0.000001}}`, 408, "deadline_exceeded"},
		{"POST", "/v1/embeddings", `{"input":"x","model":"gpt"}`, 404, "model_not_found"},
		{"POST", "/v1/embeddings", `{"input":["x",""]}`, 400, "invalid_value"},
		{"POST", "/v1/embeddings", `{"input":[99999999]}`, 400, "invalid_value"},
		{"POST", "/v1/embeddings", `{"input":"x","dimensions":100000}`, 400, "invalid_value"},
		{"POST", "/v1/embeddings", `{"input":[5` + strings.Repeat(",5", 4096) + `]}`, 400, "context_length_exceeded"},
		{"POST", "/v1/embeddings", `{"input":"x","coppice":{"timeout":0.0000001}}`, 408, "deadline_exceeded"},
		{"GET", "/v1/models/gpt", "", 404, "model_not_found"},
		{"GET", "/v1/models/a/b", "", 404, "model_not_found"},
		{"GET", "/v1/cache/tree?depth=-1", "", 400, "invalid_value"},
		{"GET", "/v1/cache/tree?tokens=", "", 400, "invalid_value"},
		{"GET", "/v1/cache/tree?nodes=1&nodes=2", "", 400, "invalid_value"},
		{"GET", "/nothing", "", 404, "unknown_url"},
		{"GET", "/v1/completions", "", 405, "method_not_allowed"},
		{"PUT", "/v1/cache/pin", "", 405, "method_not_allowed"},
		{"GET", "/debug/pprof/", "", 404, "unknown_url"},
		{"POST", "/v1/completions", "", 415, "unsupported_media_type"},
	} {
		a := b.refused(tc.method, tc.path, tc.body, tc.status, tc.code)
		if tc.status == 405 && a.Header.Get("Allow") == "" {
			t.Errorf("%s: no Allow", tc.path)
		}
		if a.Header.Get("X-Request-Id") == "" || a.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: header %v", tc.path, a.Header)
		}
	}
	b.ask("/v1/completions", ok)
	req, _ := http.NewRequest("POST", b.url+"/v1/completions", strings.NewReader(ok))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	req.Header.Set("X-Request-Id", "my-id")
	res, err := b.client.Do(req)
	b.ok(err)
	res.Body.Close()
	if res.StatusCode != 403 || res.Header.Get("X-Request-Id") != "my-id" {
		t.Errorf("cross-site: %s, id %q", res.Status, res.Header.Get("X-Request-Id"))
	}
	b.quiet()
}

// TestNoTemplate: conversations are refused, with advice.
func TestNoTemplate(t *testing.T) {
	b := start(t, setup{})
	b.srv.cfg.Template = nil // before any request
	b.refused("POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`, 400, "no_chat_template")
	b.refused("POST", "/tokenize", `{"messages":[{"role":"user","content":"x"}]}`, 400, "no_chat_template")
}

// TestDocumentHasTheRoutes: the document lists exactly the mounted routes.
func TestDocumentHasTheRoutes(t *testing.T) {
	b := start(t, setup{Server: Config{Page: true, TokenizerInfo: []byte("{}"), Card: &card.Card{Name: "worker-1"}, Bundle: &bundle.Bundle{Digest: "d", Data: []byte("tar")}}})
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	b.ok(json.Unmarshal(b.srv.fixed.document, &doc))
	want := map[string][]string{}
	for path, methods := range doc.Paths {
		for m := range methods {
			if m != "parameters" {
				want[path] = append(want[path], strings.ToUpper(m))
			}
		}
		slices.Sort(want[path])
	}
	got := map[string][]string{}
	for _, r := range b.srv.Routes() {
		got[r.Path] = r.Methods
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("mounted: %v\ndocument: %v", got, want)
	}
	for path, methods := range got {
		for _, m := range methods {
			id := "nano"
			if strings.HasPrefix(path, "/v1/responses/") {
				id = b.response("POST", "", `{"input":"x","max_output_tokens":1}`, 200).ID
			}
			a := b.do(m, strings.Replace(path, "{id}", id, 1), "")
			if a.StatusCode == 405 || a.StatusCode == 404 && !strings.HasPrefix(path, "/debug") {
				t.Errorf("%s %s: %s", m, path, a.Status)
			}
		}
	}
	if a := b.do("GET", "/", ""); a.StatusCode != 200 || !strings.Contains(a.Header.Get("Content-Type"), "text/html") {
		t.Errorf("the page: %s %v", a.Status, a.Header)
	}
}

// TestNoTokenAllowed: a request's own constraints may allow no token at all; that is an error of the
// request.
func TestNoTokenAllowed(t *testing.T) {
	b := start(t, setup{})
	for _, stream := range []bool{false, true} {
		body := fmt.Sprintf(`{"model":"nano","prompt":"q","max_tokens":4,"regex":"[0-9]{3}","allowed_token_ids":[%d],"stream":%v}`, tokenOf(t, b, "a"), stream)
		a := b.do("POST", "/v1/completions", body)
		if a.StatusCode != 400 || !strings.Contains(string(a.body), `"param":"regex"`) || !strings.Contains(string(a.body), "no token is allowed") {
			t.Errorf("%s %s", a.Status, a.body)
		}
	}
	b.quiet()
}

// tokenOf is the one token of a text.
func tokenOf(t *testing.T, b *bed, text string) kv.Token {
	t.Helper()
	tokens := b.node.Tokenizer().Encode(nil, text)
	if len(tokens) != 1 {
		t.Fatalf("%q is %v", text, tokens)
	}
	return tokens[0]
}

// TestSessionNames: requests name their session in the body or by a header, and the hints know it.
func TestSessionNames(t *testing.T) {
	b := start(t, setup{})
	completion, conversation := `"prompt":"a","max_tokens":1`, `"messages":[{"role":"user","content":"a"}],"max_tokens":1`
	for _, tc := range []struct{ path, body, header, name string }{
		{"/v1/completions", completion + `,"prompt_cache_key":"one"`, "", "one"},
		{"/v1/completions", completion + `,"session_id":"two"`, "", "two"},
		{"/v1/completions", completion, "three", "three"},
		{"/v1/completions", `"session_id":"no","prompt_cache_key":"four","prompt":"a","max_tokens":1`, "no", "four"},
		{"/v1/completions", completion + `,"prompt_cache_key":"five","session_id":"no"`, "no", "five"},
		{"/v1/chat/completions", conversation + `,"prompt_cache_key":"six"`, "", "six"},
		{"/v1/chat/completions", conversation, "seven", "seven"},
		{"/v1/chat/completions", conversation + `,"session_id":7`, "eight", "eight"},
		{"/v1/messages", conversation, "nine", "nine"},
		{"/api/chat", conversation[:len(conversation)-len(`,"max_tokens":1`)] + `,"options":{"num_predict":1}`, "ten", "ten"},
	} {
		b.session = tc.header
		if a := b.do("POST", tc.path, `{"model":"nano",`+tc.body+"}"); a.StatusCode != 200 {
			t.Fatalf("%s %s: %s %s", tc.path, tc.body, a.Status, a.body)
		}
		b.session = ""
		if a := b.do("POST", "/v1/cache/release", `{"session":"`+tc.name+`"}`); a.StatusCode != 200 {
			t.Errorf("%s %s with header %q: session %s: %s %s", tc.path, tc.body, tc.header, tc.name, a.Status, a.body)
		}
		b.refused("POST", "/v1/cache/release", `{"session":"no"}`, 404, "unknown_session")
	}
	long := strings.Repeat("x", 257)
	b.refused("POST", "/v1/completions", "{"+completion+`,"prompt_cache_key":"`+long+`"}`, 400, "invalid_value")
	b.session = long
	if a := b.do("POST", "/v1/completions", "{"+completion+"}"); a.StatusCode != 200 {
		t.Errorf("a long name in a header: %s %s", a.Status, a.body)
	}
}

// TestSessionHints checks the endpoints that take news of a session.
func TestSessionHints(t *testing.T) {
	b := start(t, setup{Node: coppice.Config{Scheduler: scheduler.Config{PinnedTokens: 256}}})
	session := `{"session":"a"`
	b.refused("POST", "/v1/cache/release", session+"}", 404, "unknown_session")
	b.refused("POST", "/v1/cache/expect", session+`,"seconds":5}`, 404, "unknown_session")
	b.refused("POST", "/v1/cache/pin", session+`,"seconds":5}`, 404, "unknown_session")
	b.refused("POST", "/v1/cache/release", session+`,"model":"other"}`, 404, "model_not_found")
	turn := func() {
		t.Helper()
		if _, err := b.node.Text(t.Context(), coppice.Request{Session: "a", Prompt: strings.Repeat("What is light? ", 20), MaxTokens: 1}); err != nil {
			t.Fatal(err)
		}
	}
	turn()
	ok := func(method, path, body, want string) {
		t.Helper()
		if a := b.do(method, path, body); a.StatusCode != 200 || !strings.Contains(string(a.body), want) {
			t.Errorf("%s %s %s: %s %s, want %s", method, path, body, a.Status, a.body, want)
		}
	}
	ok("POST", "/v1/cache/expect", session+`,"seconds":5}`, "ok")
	ok("POST", "/v1/cache/pin", session+`,"seconds":60}`, `"pinned_tokens":`)
	if got := b.stats().Scheduler.Cache.ProtectedTokens; got == 0 || got%16 != 0 {
		t.Errorf("%d tokens are protected by the session's pin", got)
	}
	ok("DELETE", "/v1/cache/pin", session+"}", `"pinned_tokens":0`)
	ok("POST", "/v1/cache/pin", session+`,"seconds":60}`, `"pinned_tokens":`)
	ok("POST", "/v1/cache/release", session+"}", "ok")
	if got := b.stats().Scheduler.Cache.ProtectedTokens; got != 0 {
		t.Errorf("%d tokens are protected after the release", got)
	}
	b.refused("POST", "/v1/cache/release", session+"}", 404, "unknown_session")
}
