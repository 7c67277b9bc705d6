package server

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/scheduler"
)

// message is an answer of /v1/messages.
type message struct {
	ID, Type, Role, Model string
	Content               []struct {
		Type, Text, ID, Name string
		Input                json.RawMessage
	}
	StopReason   string  `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
	Usage        struct {
		Input   int `json:"input_tokens"`
		Created int `json:"cache_creation_input_tokens"`
		Read    int `json:"cache_read_input_tokens"`
		Output  int `json:"output_tokens"`
	}
}

func (b *bed) message(body string) (m message, header http.Header) {
	b.Helper()
	a := b.do("POST", "/v1/messages", body)
	if a.StatusCode != 200 {
		b.Fatalf("%.200s: %s %s", body, a.Status, a.body)
	}
	b.ok(json.Unmarshal(a.body, &m))
	return m, a.Header
}

// TestMessages: a turn of Anthropic's API has the text of the same turn of OpenAI's, whole and as a stream.
func TestMessages(t *testing.T) {
	b := start(t, setup{CPU: cpu.Config{KVTokens: 8192}})
	const rest = `"messages":[{"role":"user","content":"What is light?"}],"temperature":0,"max_tokens":12`
	want := b.merge(`{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"What is light?"}],"temperature":0,"max_tokens":12}`)
	m, header := b.message(`{"model":"nano","system":"Be brief.",` + rest + `}`)
	if len(m.Content) != 1 || m.Content[0].Text != want.content || m.Type != "message" || m.Role != "assistant" || m.Model != "nano" || !strings.HasPrefix(m.ID, "msg_") {
		t.Errorf("%+v, want the text %q", m, want.content)
	}
	if m.StopReason != "max_tokens" && m.StopReason != "end_turn" || m.Usage.Output == 0 || m.Usage.Read == 0 || m.Usage.Input == 0 || m.Usage.Created != 0 {
		t.Errorf("%+v", m)
	}
	if header.Get("Request-Id") == "" || header.Get("Request-Id") != header.Get("X-Request-Id") {
		t.Errorf("the id of the request: %v", header)
	}
	a := b.do("POST", "/v1/messages", `{"stream":true,"system":"Be brief.",`+rest+`}`)
	text, names := "", ""
	for e := range strings.SplitSeq(strings.TrimSuffix(string(a.body), "\n\n"), "\n\n") {
		name, data, _ := strings.Cut(strings.TrimPrefix(e, "event: "), "\ndata: ")
		var v struct{ Delta struct{ Text string } }
		b.ok(json.Unmarshal([]byte(data), &v))
		if text += v.Delta.Text; !strings.HasSuffix(names, name+" ") {
			names += name + " "
		}
	}
	if kind := a.Header.Get("Content-Type"); text != want.content || kind != "text/event-stream" ||
		names != "message_start ping content_block_start content_block_delta content_block_stop message_delta message_stop " {
		t.Errorf("%s stream of %s: %q, want %q", kind, names, text, want.content)
	}
	count := b.do("POST", "/v1/messages/count_tokens", `{"model":"nano","system":"Be brief.","messages":[{"role":"user","content":"What is light?"}]}`)
	var c struct {
		Tokens int `json:"input_tokens"`
	}
	if b.ok(json.Unmarshal(count.body, &c)); c.Tokens != m.Usage.Input+m.Usage.Read || c.Tokens == 0 {
		t.Errorf("counted %s, used %+v", count.body, m.Usage)
	}
}

// TestMessagesTools: a required call has the form of the API, and stop sequences are told.
func TestMessagesTools(t *testing.T) {
	b := start(t, setup{})
	m, _ := b.message(`{"max_tokens":200,"messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"tool","name":"f"},"tools":[{"name":"f","input_schema":{"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"],"additionalProperties":false}}]}`)
	if n := len(m.Content); n != 1 || m.StopReason != "tool_use" || m.Content[0].Type != "tool_use" || m.Content[0].Name != "f" || !strings.HasPrefix(m.Content[0].ID, "toolu_") || !strings.HasPrefix(string(m.Content[0].Input), "{") {
		t.Errorf("%+v", m)
	}
	const ask = `"messages":[{"role":"user","content":"What is light?"}],"temperature":0,"max_tokens":12`
	m, _ = b.message(`{` + ask + `}`)
	stop := string([]rune(m.Content[0].Text)[2:3])
	escaped, err := json.Marshal(stop)
	b.ok(err)
	if m, _ = b.message(`{` + ask + `,"stop_sequences":[` + string(escaped) + `]}`); m.StopReason != "stop_sequence" || m.StopSequence == nil || *m.StopSequence != stop {
		t.Errorf("%+v, want a stop at %q", m, stop)
	}
	if m, _ := b.message(`{"messages":[{"role":"user","content":"x"}],"max_tokens":0}`); len(m.Content) != 0 || m.StopReason != "max_tokens" || m.Usage.Output != 0 {
		t.Errorf("max_tokens 0: %+v", m)
	}
}

// TestMessagesCache: usage tells what a breakpoint covers, and a nonce in the system prompt does not cost the cached prefix.
func TestMessagesCache(t *testing.T) {
	b := start(t, setup{})
	ask := func(nonce, question string) (message, http.Header) {
		return b.message(`{"max_tokens":1,"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1.37; cch=` + nonce + `;"},
			{"type":"text","text":"` + strings.Repeat("Light is a wave. ", 8) + `","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"` + question + `"}]}`)
	}
	first, header := ask("aaaaa", "What is light?")
	if u := first.Usage; u.Read != 0 || u.Created < 32 || u.Input == 0 {
		t.Errorf("the first turn: %+v", u)
	}
	if header.Get(strippedHeader) != "system; blocks=1" {
		t.Errorf("%s: %q", strippedHeader, header.Get(strippedHeader))
	}
	if m, _ := ask("bbbbb", "And what is heat?"); m.Usage.Read < 64 || m.Usage.Created >= 32 {
		t.Errorf("the second turn: %+v", m.Usage)
	}
	kept := start(t, setup{Server: Config{KeepNonces: true}})
	b = kept
	ask("aaaaa", "What is light?")
	if m, header := ask("bbbbb", "What is light?"); m.Usage.Created < 64 || header.Get(strippedHeader) != "" {
		t.Errorf("with nonces kept: %+v %v", m.Usage, header)
	}
}

// TestMessagesErrors: errors have the form of the API, also those of paths that other APIs have; keys come by X-Api-Key.
func TestMessagesErrors(t *testing.T) {
	b := start(t, setup{Server: Config{Keys: []Key{{Secret: "secret-of-a", Tenant: "a"}}, Aliases: []string{"small"}}})
	send := func(method, path, key, body string) received {
		req, err := http.NewRequest(method, b.url+path, strings.NewReader(body))
		b.ok(err)
		req.Header.Set("Anthropic-Version", "2023-06-01")
		req.Header.Set("Content-Type", "application/json")
		if key != "" {
			req.Header.Set("X-Api-Key", key)
		}
		res, err := b.client.Do(req)
		b.ok(err)
		defer res.Body.Close()
		var out json.RawMessage
		b.ok(json.NewDecoder(res.Body).Decode(&out))
		return received{res, out}
	}
	const ask = `{"model":"small","max_tokens":1,"messages":[{"role":"user","content":"x"}]}`
	for _, tc := range []struct {
		method, path, key, body string
		status                  int
		says                    string
	}{
		{"POST", "/v1/messages", "secret-of-a", ask, 200, `"type":"message"`}, {"POST", "/v1/messages", "", ask, 401, "authentication_error"}, {"POST", "/v1/messages", "another-secret", ask, 401, "authentication_error"},
		{"POST", "/v1/messages", "secret-of-a", `{}`, 400, "invalid_request_error"}, {"POST", "/v1/messages", "secret-of-a", `{`, 400, "invalid_request_error"}, {"GET", "/v1/messages", "secret-of-a", "", 405, "invalid_request_error"},
		{"POST", "/v1/messages", "secret-of-a", strings.Replace(ask, "small", "claude-x", 1), 404, `not_found_error","message":"the model \"claude-x\" is not served here; /v1/models lists the models; these are nano, small. With --model-name nano,*`},
		{"POST", "/v1/messages/batches", "secret-of-a", ask, 404, "not_found_error"}, {"GET", "/v1/models", "", "", 401, "authentication_error"}, {"GET", "/v1/models/x", "secret-of-a", "", 404, "not_found_error"},
		{"GET", "/v1/models", "secret-of-a", "", 200, `{"data":[{"type":"model","id":"nano","display_name":"nano"`}, {"GET", "/v1/models/small", "secret-of-a", "", 200, `{"type":"model","id":"small"`},
	} {
		a := send(tc.method, tc.path, tc.key, tc.body)
		if a.StatusCode != tc.status || !strings.Contains(string(a.body), tc.says) {
			t.Errorf("%s %s %s: %s %s, want %d %s", tc.method, tc.path, tc.body, a.Status, a.body, tc.status, tc.says)
		}
		if id := a.Header.Get("Request-Id"); id == "" || tc.status >= 400 && !strings.Contains(string(a.body), `"request_id":"`+id+`"`) {
			t.Errorf("%s %s: id %q in %s", tc.method, tc.path, id, a.body)
		}
	}
	if a := b.do("GET", "/v1/models", ""); !strings.Contains(string(a.body), `"type":"invalid_request_error"`) {
		t.Errorf("without the header: %s", a.body)
	}
	any := start(t, setup{Server: Config{Aliases: []string{AnyName}}})
	if a := any.do("POST", "/v1/messages", strings.Replace(ask, "small", "claude-x", 1)); a.StatusCode != 200 {
		t.Errorf("any name: %s %s", a.Status, a.body)
	}
}

// TestTokensWithin: control tokens count with their text, which output does not have.
func TestTokensWithin(t *testing.T) {
	b := start(t, setup{})
	const begun, text = "Light<|end_of_text|>", "Light<|end_of_text|> and heat"
	n := len(b.tok.Encode(nil, begun))
	tokens := b.tok.Encode(nil, text)
	if !b.tok.Special(tokens[n-1]) {
		t.Fatalf("token %d of %v is no control token", n-1, tokens)
	}
	if got := b.srv.tokensWithin(tokens, []int{0, len(begun) - 1, len(begun), len(text), len(text) + 9}); !slices.Equal(got, []int{0, n - 1, n, len(tokens), len(tokens)}) {
		t.Errorf("%v of %v", got, tokens)
	}
}

// TestMessagesWindow: clients ask for more tokens than the context has, and get as many as it has. A prompt that does not fit
// is refused in words that clients know.
func TestMessagesWindow(t *testing.T) {
	for _, small := range []cpu.Config{{}, {KVTokens: 128}} { // the context ends first, or the pool
		b := start(t, setup{CPU: small, Node: coppice.Config{Scheduler: scheduler.Config{PinnedTokens: 16}}})
		m, _ := b.message(`{"max_tokens":1000000,"messages":[{"role":"user","content":"` + strings.Repeat("x", 80) + `"}],"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"none"},"coppice":{"ignore_eos":true}}`)
		if want := b.srv.room(0) - m.Usage.Input; m.StopReason != "model_context_window_exceeded" || m.Usage.Output != want {
			t.Errorf("%+v, want %d tokens", m, want)
		}
	}
	b := start(t, setup{})
	a := b.do("POST", "/v1/messages", `{"max_tokens":5,"messages":[{"role":"user","content":"`+strings.Repeat("x ", 20000)+`"}]}`)
	if a.StatusCode != 400 || !strings.Contains(string(a.body), `"message":"prompt is too long: `) {
		t.Errorf("%s %s", a.Status, a.body)
	}
}
