package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// ollamaReply is an answer of Ollama's API, or a line of one.
type ollamaReply struct {
	Model     string
	CreatedAt string `json:"created_at"`
	Response  string
	Message   struct {
		Role, Content, Thinking string
		ToolCalls               []struct {
			Function struct {
				Name      string
				Arguments json.RawMessage
			}
		} `json:"tool_calls"`
	}
	Done         bool
	DoneReason   string `json:"done_reason"`
	Context      []int
	PromptTokens int   `json:"prompt_eval_count"`
	Cached       int   `json:"prompt_cached_count"`
	Output       int   `json:"eval_count"`
	Total        int64 `json:"total_duration"`
	Logprobs     []struct {
		Token string
		Top   []any `json:"top_logprobs"`
	}
	Error  string
	Status string
}

// ollama posts a request and reads the lines of the answer.
func (b *bed) ollama(path, body string) (lines []ollamaReply) {
	b.Helper()
	a := b.do("POST", path, body)
	if a.StatusCode != 200 {
		b.Fatalf("%s %s: %s %s", path, body, a.Status, a.body)
	}
	for line := range bytes.Lines(a.body) {
		var r ollamaReply
		if err := json.Unmarshal(line, &r); err != nil {
			b.Fatalf("%v in %q", err, line)
		}
		lines = append(lines, r)
	}
	want := "application/json"
	if !strings.Contains(body, `"stream":false`) {
		want = "application/x-ndjson"
	}
	if got := a.Header.Get("Content-Type"); got != want {
		b.Errorf("%s: the body is %s, want %s", path, got, want)
	}
	return lines
}

// said joins the lines of a stream.
func said(lines []ollamaReply) (text string, last ollamaReply) {
	for _, l := range lines {
		text += l.Message.Content + l.Response
		last = l
	}
	return text, last
}

// TestOllamaChat: the same conversation has the same answer as over /v1/chat/completions, streamed and not, and its
// prompt comes from the cache that the other API filled.
func TestOllamaChat(t *testing.T) {
	b := start(t, setup{})
	const messages = `"messages":[{"role":"system","content":"You are brief and clear, and you answer in a single line."},{"role":"user","content":"What is light?"}]`
	want := b.ask("/v1/chat/completions", `{"model":"nano",`+messages+`,"seed":3,"max_tokens":12,"temperature":1}`)
	for _, stream := range []string{"", `,"stream":false`} {
		lines := b.ollama("/api/chat", `{"model":"nano:latest",`+messages+`,"options":{"seed":3,"num_predict":12,"temperature":1}`+stream+`}`)
		text, last := said(lines)
		if text != want.Choices[0].Message.Content || !last.Done || last.DoneReason != "length" || last.Model != "nano" {
			t.Errorf("%q, %+v, want %q", text, last, want.Choices[0].Message.Content)
		}
		if last.PromptTokens != want.Usage.Prompt || last.Output != 12 || last.Cached == 0 || last.Total <= 0 {
			t.Errorf("%+v, want the usage %+v", last, want.Usage)
		}
		if single := len(lines) == 1; single != (stream != "") {
			t.Errorf("%d lines", len(lines))
		}
	}
	b.quiet()
}

// TestOllamaLogprobs: each output token has its log-probability.
func TestOllamaLogprobs(t *testing.T) {
	b := start(t, setup{})
	for _, stream := range []string{"", `,"stream":false`} {
		n := 0
		for _, l := range b.ollama("/api/generate", `{"model":"nano","prompt":"What is","logprobs":true,"top_logprobs":2,"options":{"num_predict":5,"seed":1}`+stream+`}`) {
			for _, p := range l.Logprobs {
				if n++; len(p.Top) != 2 {
					t.Errorf("%+v", p)
				}
			}
		}
		if n == 0 || n > 5 {
			t.Errorf("%d log-probabilities", n)
		}
	}
}

// TestOllamaGenerate: a context continues its conversation from the cache, and raw prompts are taken as they are.
func TestOllamaGenerate(t *testing.T) {
	b := start(t, setup{})
	text, first := said(b.ollama("/api/generate", `{"model":"nano","prompt":"What is light, and why does it bend in water?","system":"You are brief.","options":{"num_predict":8,"seed":5}}`))
	if first.DoneReason == "" || len(first.Context) < first.PromptTokens {
		t.Fatalf("%q %+v", text, first)
	}
	context, _ := json.Marshal(first.Context)
	_, second := said(b.ollama("/api/generate", `{"model":"nano","prompt":"And sound?","context":`+string(context)+`,"options":{"num_predict":4,"seed":5}}`))
	if !slices.Equal(second.Context[:len(first.Context)], first.Context) || second.Cached < first.PromptTokens/2 {
		t.Errorf("the second turn: %+v", second)
	}
	var tokens []kv.Token
	for _, id := range second.Context[len(first.Context):second.PromptTokens] {
		tokens = append(tokens, kv.Token(id))
	}
	if got := string(b.tok.Decode(nil, tokens, true)); got != "<user>And sound?<assistant>" {
		t.Errorf("the second turn adds %q to the context", got)
	}
	want := b.ask("/v1/completions", `{"prompt":"Light is","seed":4,"max_tokens":6}`)
	if text, last := said(b.ollama("/api/generate", `{"model":"nano","prompt":"Light is","raw":true,"options":{"seed":4,"num_predict":6},"stream":false}`)); text != want.Choices[0].Text || last.Context != nil {
		t.Errorf("raw: %q %+v, want %q", text, last, want.Choices[0].Text)
	}
	b.quiet()
}

// TestOllamaFormat: outputs match "json" and schemas.
func TestOllamaFormat(t *testing.T) {
	b := start(t, setup{Node: coppice.Config{Scheduler: scheduler.Config{DefaultMaxTokens: 200}}})
	const schema = `{"type":"object","properties":{"n":{"enum":["one","two"]}},"required":["n"],"additionalProperties":false}`
	text, _ := said(b.ollama("/api/chat", `{"model":"nano","messages":[{"role":"user","content":"x"}],"format":`+schema+`,"options":{"seed":1}}`))
	var v struct{ N string }
	if err := json.Unmarshal([]byte(text), &v); err != nil || v.N != "one" && v.N != "two" {
		t.Errorf("%v in %q", err, text)
	}
}

// TestOllamaTools: calls in the output are calls on the wire, with arguments as an object; after them the
// conversation goes on with the result.
func TestOllamaTools(t *testing.T) {
	f := callForms[slices.IndexFunc(callForms, func(f callForm) bool { return f.form == "hermes" })]
	output := &script{}
	b := start(t, setup{Server: Config{Template: f.chatTemplate(t)}, Node: coppice.Config{Scheduler: scheduler.Config{DefaultMaxTokens: 400}}, Tokenizer: f.tokenizer(t), Script: output})
	tokens := append(b.tok.Encode(nil, f.one), b.tok.EOS()[0])
	output.Store(&tokens)
	const tools = `"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}]`
	for _, stream := range []string{"", `,"stream":false`} {
		lines := b.ollama("/api/chat", `{"model":"nano","messages":[{"role":"user","content":"Weather in Paris?"}],`+tools+stream+`}`)
		var calls []string
		for _, l := range lines {
			for _, c := range l.Message.ToolCalls {
				calls = append(calls, c.Function.Name+" "+strings.ReplaceAll(string(c.Function.Arguments), " ", ""))
			}
		}
		if _, last := said(lines); len(calls) != 1 || calls[0] != `weather {"city":"Paris"}` || last.DoneReason != "stop" {
			t.Errorf("%q, %+v", calls, lines)
		}
	}
	said(b.ollama("/api/chat", `{"model":"nano","messages":[{"role":"user","content":"Weather in Paris?"},{"role":"assistant","content":"","tool_calls":[{"function":{"name":"weather","arguments":{"city":"Paris"}}}]},{"role":"tool","tool_name":"weather","content":"Sun"}],`+tools+`,"options":{"num_predict":3}}`))
	b.quiet()
}

// TestOllamaModels: the endpoints that clients ask on their start.
func TestOllamaModels(t *testing.T) {
	b := start(t, setup{Server: Config{Aliases: []string{"small:1b"}, Version: "v1", About: About{Format: "gguf", Architecture: "llama", Weights: "Q4_1", Parameters: 135e6, Bytes: 9}}})
	for _, tc := range []struct{ method, path, body, want string }{
		{"GET", "/api/version", "", `{"version":"0.13.0","coppice":"v1"}`},
		{"GET", "/api/tags", "", `"parameter_size":"135.00M","quantization_level":"Q4_1"`},
		{"GET", "/api/tags", "", `{"name":"small:1b","model":"small:1b"`},
		{"GET", "/api/ps", "", `"context_length":`},
		{"POST", "/api/show", `{"model":"nano:latest"}`, `"capabilities":["completion","tools"`},
		{"POST", "/api/show", `{"name":"small:1b","verbose":true}`, `"general.architecture":"llama"`},
		{"POST", "/api/pull", `{"model":"nano"}`, `{"status":"success"}`},
		{"POST", "/api/chat", `{"model":"nano","messages":[],"stream":false}`, `"done":true,"done_reason":"load"`},
		{"POST", "/api/generate", `{"model":"nano","keep_alive":0}`, `"response":"","done":true,"done_reason":"unload"`},
	} {
		if a := b.do(tc.method, tc.path, tc.body); a.StatusCode != 200 || !strings.Contains(string(a.body), tc.want) {
			t.Errorf("%s: %s %s, want %s", tc.path, a.Status, a.body, tc.want)
		}
	}
}

// TestOllamaErrors: every error has the form of that API, also of a server with keys.
func TestOllamaErrors(t *testing.T) {
	b := start(t, setup{Server: Config{Keys: batteryKeys}})
	for _, tc := range []struct {
		method, path, body, key string
		status                  int
	}{
		{"POST", "/api/chat", `{"model":"nano","messages":[{"role":"user","content":"x"}]}`, "", 401},
		{"POST", "/api/chat", `{"model":"other","messages":[{"role":"user","content":"x"}]}`, "secret-of-a", 404},
		{"POST", "/api/chat", `{"model":"nano","messages":[{"role":"user","content":"x"}],"color":1}`, "secret-of-a", 400},
		{"POST", "/api/chat", `{`, "secret-of-a", 400},
		{"GET", "/api/chat", ``, "secret-of-a", 405},
		{"POST", "/api/generate", `{"model":"nano","prompt":"x","context":[99999999]}`, "secret-of-a", 400},
		{"POST", "/api/show", `{"model":"other"}`, "secret-of-a", 404},
		{"POST", "/api/pull", `{"model":"other"}`, "secret-of-a", 404},
		{"POST", "/api/create", `{"model":"other"}`, "secret-of-a", 400},
		{"DELETE", "/api/delete", `{"model":"other"}`, "secret-of-a", 400},
		{"POST", "/api/blobs/sha256:00", ``, "secret-of-a", 400},
		{"GET", "/api/nothing", ``, "secret-of-a", 404},
	} {
		b.key = tc.key
		a := b.do(tc.method, tc.path, tc.body)
		var r struct{ Error string }
		if err := json.Unmarshal(a.body, &r); err != nil || a.StatusCode != tc.status || len(r.Error) < 12 {
			t.Errorf("%s %s %s: %s %s, want %d", tc.method, tc.path, tc.body, a.Status, a.body, tc.status)
		}
	}
}

// TestOllamaBattery: hostile bodies of the chats of other APIs end with an error in this API's form or with an
// answer, and leave nothing.
func TestOllamaBattery(t *testing.T) {
	b, _ := batteryBed(t)
	b.key = "secret-of-a"
	n := 0
	for _, h := range slices.Concat(brokenJSON(), wrongTypes(), wrongChats(), extremes(), strangeText()) {
		for _, path := range []string{"/api/chat", "/api/generate"} {
			body := h.body
			if strings.HasPrefix(body, `{"`) {
				body = `{"model":"nano","stream":false,` + body[1:]
			}
			body = strings.Replace(body, `"max_tokens":`, `"options":{},"keep_alive":`, 1)
			a, err := b.try(b.Context(), "POST", path, body)
			if err != nil {
				continue // the server closed the connection while a long body arrived
			}
			var r ollamaReply
			line, _, _ := bytes.Cut(a.body, []byte("\n"))
			if err := json.Unmarshal(line, &r); a.StatusCode >= 500 || err != nil || (a.StatusCode == 200) == (r.Error != "") {
				t.Errorf("%s, %s: %s %.300s", h.name, path, a.Status, a.body)
			}
			n++
		}
	}
	if n < 400 {
		t.Errorf("%d requests", n)
	}
	b.quiet()
}

// TestOllamaStreamFails: a stream whose node fails ends with an error in a line of its own.
func TestOllamaStreamFails(t *testing.T) {
	b, w := batteryBed(t)
	b.key = "secret-of-a"
	release := w.hold()
	ended := make(chan received)
	go func() {
		a, _ := b.try(b.Context(), "POST", "/api/chat", `{"model":"nano","messages":[{"role":"user","content":"x"}],"options":{"num_predict":3}}`)
		ended <- a
	}()
	b.until(func(s *coppice.Stats) bool { return s.Scheduler.Running+s.Scheduler.Waiting > 0 })
	b.srv.open.Finish(errDrained)
	a := <-ended // before the first step ends: after it the stream may have begun
	release()
	if a.Response == nil || a.StatusCode != http.StatusServiceUnavailable || !strings.HasPrefix(string(a.body), `{"error":"`) {
		t.Errorf("%s", fmt.Sprint(a.Response, string(a.body)))
	}
}

// TestOllamaUntyped: bodies need no Content-Type, since curl and some clients send none. Pages of browsers need one.
func TestOllamaUntyped(t *testing.T) {
	b := start(t, setup{})
	for _, tc := range []struct {
		kind, origin string
		status       int
	}{
		{"", "", 200}, {"application/x-www-form-urlencoded", "", 200}, {"text/plain", "", 415}, {"", b.url, 415}, {"application/x-www-form-urlencoded", b.url, 415}, {"application/json", b.url, 200},
	} {
		req, err := http.NewRequest("POST", b.url+"/api/show", strings.NewReader(`{"model":"nano"}`))
		b.ok(err)
		for name, v := range map[string]string{"Content-Type": tc.kind, "Origin": tc.origin} {
			if v != "" {
				req.Header.Set(name, v)
			}
		}
		res, err := b.client.Do(req)
		b.ok(err)
		res.Body.Close()
		if res.StatusCode != tc.status {
			t.Errorf("type %q from %q: %s, want %d", tc.kind, tc.origin, res.Status, tc.status)
		}
	}
}

// TestOllamaEmbed: texts have the vectors that they have over /v1/embeddings.
func TestOllamaEmbed(t *testing.T) {
	b := start(t, setup{})
	var want struct {
		Data []struct{ Embedding []float32 }
	}
	b.ok(json.Unmarshal(b.do("POST", "/v1/embeddings", `{"input":["What is light?","Sound"]}`).body, &want))
	var got struct {
		Model      string
		Embeddings [][]float32
		Embedding  []float32
		Tokens     int `json:"prompt_eval_count"`
	}
	b.ok(json.Unmarshal(b.do("POST", "/api/embed", `{"model":"nano:latest","input":["What is light?","Sound"],"truncate":true,"keep_alive":"5m","options":{"num_ctx":512}}`).body, &got))
	if len(want.Data) != 2 || len(got.Embeddings) != 2 || got.Model != "nano" || got.Tokens == 0 || !slices.Equal(got.Embeddings[0], want.Data[0].Embedding) || !slices.Equal(got.Embeddings[1], want.Data[1].Embedding) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if b.ok(json.Unmarshal(b.do("POST", "/api/embeddings", `{"model":"nano","prompt":"Sound"}`).body, &got)); len(got.Embedding) != len(got.Embeddings[1]) || slices.Equal(got.Embedding, got.Embeddings[1]) {
		t.Errorf("the older form: %v, normalised %v", got.Embedding, got.Embeddings[1])
	}
	if a := b.do("POST", "/api/embed", `{"model":"nano","input":[]}`); a.StatusCode != 200 || !strings.Contains(string(a.body), `"embeddings":[]`) {
		t.Errorf("no inputs: %s %s", a.Status, a.body)
	}
	for _, body := range []string{`{"model":"nano","input":7}`, `{"model":"nano","input":["x",""]}`, `{"model":"nano","input":"x","dimensions":99999}`, `{"model":"nano","inputs":"x"}`} {
		if a := b.do("POST", "/api/embed", body); a.StatusCode != 400 || !strings.HasPrefix(string(a.body), `{"error":"`) {
			t.Errorf("%s: %s %s", body, a.Status, a.body)
		}
	}
}
