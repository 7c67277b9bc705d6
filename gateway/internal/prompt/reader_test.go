package prompt

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/router/kvindex"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// agrees fails unless r reads body as the server does, if the server accepts it.
func agrees(t *testing.T, r *Reader, kind Kind, body []byte, p *Prompt) (accepted bool) {
	t.Helper()
	want, err := byServer(r.cfg.Tokenizer, r.cfg.Template, kind, body)
	readErr := r.Read(kind, "", body, As{}, p)
	if err != nil {
		return false
	}
	if readErr != nil || !p.Exact() || p.Inexact != nil || !slices.Equal(p.Tokens, want) {
		t.Fatalf("%s %s\ngives %v, exact %v (%v), %v,\nwant %v", kind, body, p.Tokens, p.Exact(), p.Inexact, readErr, want)
	}
	return true
}

var templates = []string{"plain.jinja", "qwen.jinja", "llama.jinja", "mistral.jinja"}

// goldenBodies returns the conversations of tokenizer/chat/testdata/golden.json as requests.
func goldenBodies(t testing.TB) [][]byte {
	t.Helper()
	data, err := os.ReadFile("../../../tokenizer/chat/testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		Chats []struct {
			Messages []json.RawMessage
			Options  map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	var bodies [][]byte
	for _, c := range g.Chats {
		for _, final := range []bool{false, true} {
			body := map[string]any{"messages": c.Messages, "model": "m"}
			kwargs := map[string]json.RawMessage{}
			for name, value := range c.Options {
				switch name {
				case "tools", "documents", "add_generation_prompt":
					body[name] = value
				default:
					kwargs[name] = value
				}
			}
			if len(kwargs) > 0 {
				body["chat_template_kwargs"] = kwargs
			}
			if final {
				body["continue_final_message"] = true
			}
			data, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			bodies = append(bodies, data)
		}
	}
	return bodies
}

func TestReadAgreesWithTheServer(t *testing.T) {
	tok := testTokenizer(t)
	bodies := goldenBodies(t)
	lines, err := os.ReadFile("../../../openai/testdata/decode")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(lines), "\n") {
		bodies = append(bodies, []byte(line))
	}
	for _, body := range []string{conversationBody(5000, 10), completionBody(3000), tokenBody(100)} {
		bodies = append(bodies, []byte(body))
	}
	chats, completions, embeddings := 0, 0, 0
	var p Prompt
	for _, name := range templates {
		for _, bytes := range []int{-1, 4 << 10, 64 << 20} { // caches for nothing, for few texts, for many
			r := testReader(t, Config{Tokenizer: tok, Template: testTemplate(t, name), CacheBytes: bytes})
			for _, body := range bodies {
				if agrees(t, r, Chat, body, &p) {
					chats++
				}
				if agrees(t, r, Completions, body, &p) {
					completions++
				}
				if agrees(t, r, Embeddings, body, &p) {
					embeddings++
				}
			}
		}
	}
	if chats < 1000 || completions < 200 || embeddings < 20 {
		t.Errorf("%d chats, %d completions and %d requests for embeddings are taken, want more", chats, completions, embeddings)
	}
}

func FuzzRead(f *testing.F) {
	r := testReader(f, Config{Tokenizer: testTokenizer(f), Template: testTemplate(f, "qwen.jinja"), CacheBytes: 32 << 10})
	for _, body := range goldenBodies(f)[:40] {
		f.Add(body)
	}
	f.Add([]byte(`{"prompt":"Once <|turn|> upon"}`))
	f.Add([]byte(`{"prompt":[[1,2],[3]]}`))
	var p Prompt
	f.Fuzz(func(t *testing.T, body []byte) {
		agrees(t, r, Chat, body, &p)
		agrees(t, r, Completions, body, &p)
	})
}

func TestReadOptions(t *testing.T) {
	r := testReader(t, Config{Tokenizer: testTokenizer(t), Template: testTemplate(t, "plain.jinja")})
	var p Prompt
	for _, tc := range []struct {
		kind Kind
		body string
		want Prompt
	}{
		{Completions, `{"model":"m","prompt":[[1,2],[3],[4]],"n":2,"best_of":3,"stream":true,"user":"u","max_tokens":7,"cache_salt":"s","foo":1}`,
			Prompt{Model: "m", User: "u", CacheSalt: "s", Stream: true, Tokens: []kv.Token{1, 2}, Prompts: 3, Choices: 9, OutputTokens: 7}},
		{Completions, `{"prompt":[1,2,3],"coppice":{"cache_salt":"s","public_tokens":2}}`,
			Prompt{CacheSalt: "s", PublicTokens: 2, Tokens: []kv.Token{1, 2, 3}, Prompts: 1, Choices: 1, OutputTokens: 16}},
		{Completions, `{"prompt":[1,2,3],"n":2147483647}`, Prompt{Tokens: []kv.Token{1, 2, 3}, Prompts: 1, Choices: 1<<31 - 1, OutputTokens: 16}},
		{Completions, `{"prompt":["a"],"add_special_tokens":false}`, Prompt{Tokens: r.cfg.Tokenizer.Encode(nil, "a"), Prompts: 1, Choices: 1, OutputTokens: 16}},
		{Chat, `{"messages":[{"role":"user","content":"a"}],"add_special_tokens":true,"max_completion_tokens":3}`,
			Prompt{Tokens: r.cfg.Tokenizer.EncodePrompt(nil, render(t, r, "a")), Prompts: 1, Choices: 1, OutputTokens: 3}},
	} {
		if err := r.Read(tc.kind, "t", []byte(tc.body), As{}, &p); err != nil {
			t.Fatal(err)
		}
		tc.want.Namespace = conversation.Namespace("t", tc.want.CacheSalt)
		got := p
		got.tokens, got.bytes, got.peeked, got.most = nil, nil, openai.Peeked{}, 0
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s\ngives %+v,\nwant  %+v", tc.body, got, tc.want)
		}
	}
}

// render returns one message rendered by r's template.
func render(t *testing.T, r *Reader, content string) string {
	t.Helper()
	text, err := r.cfg.Template.Render([]chat.Message{{Role: "user", Content: content}}, chat.Options{AddGenerationPrompt: true, Now: testNow})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestInexact: guesses preserve common prefixes.
func TestInexact(t *testing.T) {
	tok, tmpl := testTokenizer(t), testTemplate(t, "plain.jinja")
	both := testReader(t, Config{Tokenizer: tok, Template: tmpl})
	image := func(url string) string {
		return `{"messages":[{"role":"system","content":"` + strings.Repeat("Be brief. ", 10) + `"},{"role":"user","content":[{"type":"image_url","image_url":"` + url + `"}]}]}`
	}
	refused := `{"messages":[{"role":"assistant","content":"` + strings.Repeat("x ", 50) + `"},{"role":"assistant","content":"a"}]}`
	for _, tc := range []struct {
		name   string
		r      *Reader
		kind   Kind
		body   string
		other  string // has a common prefix with body
		common int    // least length in tokens
		why    error
	}{
		{"no tokenizer", testReader(t, Config{}), Completions, `{"prompt":"abcdefgh123"}`, `{"prompt":"abcdefghij"}`, 2, ErrNoTokenizer},
		{"no tokenizer, a chat", testReader(t, Config{Template: tmpl}), Chat, conversationBody(1000, 2), strings.Replace(conversationBody(1000, 2), `"}]}`, `?"}]}`, 1), 200, ErrNoTokenizer},
		{"no template", testReader(t, Config{Tokenizer: tok}), Chat, conversationBody(1000, 2), strings.Replace(conversationBody(1000, 2), `"}]}`, `?"}]}`, 1), 200, ErrNoTemplate},
		{"images", both, Chat, image("a"), image("b"), 10, nil},
		{"refused by the template", testReader(t, Config{Tokenizer: tok, Template: testTemplate(t, "mistral.jinja")}), Chat, refused, strings.Replace(refused, `"a"`, `"b"`, 1), 25, chat.ErrRefused},
		{"no prompt", both, Completions, `{}`, `{"prompt":5}`, 0, nil},
		{"no messages", both, Chat, `{}`, `{"messages":[]}`, 0, nil},
	} {
		var p, q Prompt
		read(t, tc.r, tc.kind, tc.body, &p)
		read(t, tc.r, tc.kind, tc.other, &q)
		if p.Exact() || p.Inexact == nil || tc.why != nil && !errors.Is(p.Inexact, tc.why) || q.Exact() {
			t.Errorf("%s: exact %v, for %v", tc.name, p.Exact(), p.Inexact)
		}
		common := 0
		for common < min(len(p.Tokens), len(q.Tokens)) && p.Tokens[common] == q.Tokens[common] {
			common++
		}
		if common < tc.common || tc.common > 0 && common == len(p.Tokens) {
			t.Errorf("%s: %d tokens of %v and %v are the same, want %d or more, but not all", tc.name, common, p.Tokens, q.Tokens, tc.common)
		}
		if tc.common == 0 && len(p.Tokens) > 0 {
			t.Errorf("%s: has tokens: %v", tc.name, p.Tokens)
		}
	}
	var p Prompt
	if read(t, testReader(t, Config{}), Completions, `{"prompt":"abcde"}`, &p); !slices.Equal(p.Tokens, []kv.Token{'a' | 'b'<<8 | 'c'<<16 | 'd'<<24, 'e'}) {
		t.Errorf("abcde is %v by its bytes", p.Tokens)
	}
	if read(t, testReader(t, Config{}), Completions, `{"prompt":[5]}`, &p); !p.Exact() {
		t.Errorf("token ids are inexact: %v", p.Inexact)
	}
}

// TestMaxTokens: at the limit, one below, one above.
func TestMaxTokens(t *testing.T) {
	tok := testTokenizer(t)
	for name, body := range map[string]string{"tokens": tokenBody(100), "text": completionBody(2000)} {
		var whole Prompt
		read(t, testReader(t, Config{Tokenizer: tok}), Completions, body, &whole)
		n := len(whole.Tokens)
		for _, cache := range []int{-1, 64 << 20} {
			for _, most := range []int{1, n - 1, n, n + 1} {
				var p Prompt
				read(t, testReader(t, Config{Tokenizer: tok, MaxTokens: most, CacheBytes: cache}), Completions, body, &p)
				if !slices.Equal(p.Tokens, whole.Tokens[:min(n, most)]) || p.Truncated != (most < n) || !p.Exact() {
					t.Errorf("%s of %d, at most %d: %d, truncated %v", name, n, most, len(p.Tokens), p.Truncated)
				}
			}
		}
	}
	bytes := testReader(t, Config{MaxTokens: 3})
	for text, truncated := range map[string]bool{"12345678901": false, "123456789012": false, "1234567890123": true} {
		var p Prompt
		if read(t, bytes, Completions, `{"prompt":"`+text+`"}`, &p); len(p.Tokens) != 3 || p.Truncated != truncated {
			t.Errorf("%q: %v, truncated %v", text, p.Tokens, p.Truncated)
		}
	}
}

func TestOwnNamespace(t *testing.T) {
	own := testReader(t, Config{Namespace: func(tenant, salt string) kv.Namespace { return kv.Namespace{LoRA: tenant + salt} }})
	var p Prompt
	if err := own.Read(Completions, "a", []byte(`{"prompt":[1],"cache_salt":"b"}`), As{}, &p); err != nil || p.Namespace.LoRA != "ab" {
		t.Errorf("%+v, %v", p.Namespace, err)
	}
}

func TestReadRefuses(t *testing.T) {
	r := testReader(t, Config{})
	var p Prompt
	read(t, r, Completions, `{"model":"m","prompt":[1]}`, &p)
	var fault *conversation.Error
	if err := r.Read(Completions, "", []byte(`{"model":"x","prompt":[1`), As{}, &p); !errors.As(err, &fault) || fault.Status != 400 {
		t.Errorf("a broken body: %v", err)
	}
	if p.Model != "" || p.Tokens != nil {
		t.Errorf("of the request before there is %+v", p)
	}
}

func TestConfigIsValidated(t *testing.T) {
	_, err := New(Config{CacheBytes: 1<<40 + 1, MaxTokens: -1})
	for _, want := range []string{"CacheBytes", "MaxTokens"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s to be named", err, want)
		}
	}
	if _, err := New(Config{CacheBytes: 1 << 40, MaxTokens: 1 << 24}); err != nil {
		t.Error(err)
	}
}

// TestReadAllocates: nothing for token ids; for texts the text and little else.
func TestReadAllocates(t *testing.T) {
	r := testReader(t, Config{Tokenizer: testTokenizer(t)})
	var p Prompt
	for _, tc := range []struct {
		name, body string
		most       float64
	}{{"tokens", tokenBody(1000), 0}, {"text", completionBody(3000), 1}} {
		body := []byte(tc.body)
		if n := testing.AllocsPerRun(50, func() {
			if err := r.Read(Completions, "", body, As{}, &p); err != nil || !p.Exact() {
				t.Fatal(err, p.Inexact)
			}
		}); n > tc.most {
			t.Errorf("%s: %v allocations, want %v", tc.name, n, tc.most)
		}
	}
}

// TestMemoryOfALargeTextIsFreed: neither a Prompt nor the cache keeps the memory of one large text.
func TestMemoryOfALargeTextIsFreed(t *testing.T) {
	r := testReader(t, Config{Tokenizer: testTokenizer(t), CacheBytes: 1 << 20})
	var p Prompt
	read(t, r, Completions, `{"prompt":"`+strings.Repeat("xyz", 256<<10)+`"}`, &p)
	if p.Reset(); cap(p.tokens) > keptTokens {
		t.Errorf("room for %d tokens is kept", cap(p.tokens))
	}
	if s := r.Stats(); s.Parts > 0 {
		t.Errorf("%+v", s)
	}
}

// TestNextTurnIsEncodedOnce: the next turn costs only the encoding of its new part, and of the turn
// before, which this template writes differently while it is the last one. Another tenant finds nothing.
func TestNextTurnIsEncodedOnce(t *testing.T) {
	r := testReader(t, Config{Tokenizer: testTokenizer(t), Template: testTemplate(t, "qwen.jinja")})
	var p Prompt
	for _, tenant := range []string{"a", "b"} {
		before, size := r.Stats(), 0
		for turns := 10; turns <= 20; turns += 2 {
			if err := r.Read(Chat, tenant, []byte(conversationBody(1000*turns, turns)), As{}, &p); err != nil || !p.Exact() {
				t.Fatal(err, p.Inexact)
			}
			s := r.Stats()
			fresh, added := int(s.Encoded-before.Encoded), len(p.Tokens)-size
			if fresh < added || turns > 10 && fresh > added*5/2 || fresh+int(s.Reused-before.Reused) != len(p.Tokens) {
				t.Errorf("of %d tokens, %d more than before, %d are encoded and %d reused, want those of the 2 turns, the one before and perhaps the end",
					len(p.Tokens), added, fresh, s.Reused-before.Reused)
			}
			before, size = s, len(p.Tokens)
		}
	}
}

// TestBlocksOfTexts: a text comes with the hashes of its blocks, whole or clipped, cached or not; token ids come with none.
func TestBlocksOfTexts(t *testing.T) {
	tok := testTokenizer(t)
	for _, cache := range []int{-1, 64 << 20} {
		r := testReader(t, Config{Tokenizer: tok, Template: testTemplate(t, "qwen.jinja"), CacheBytes: cache})
		var p Prompt
		for i := range 6 {
			kind, body := Chat, conversationBody(4000+1000*i, 4+i)
			if i%2 == 1 {
				kind, body = Completions, completionBody(5000)
			}
			as := As{BlockTokens: 16}
			if i > 3 {
				as.MaxTokens = 500
			}
			if err := r.Read(kind, "a", []byte(body), as, &p); err != nil || !p.Exact() {
				t.Fatal(err, p.Inexact)
			}
			var want, got kvindex.TokensWithHashes
			want.Reset(p.Tokens, p.Namespace)
			got.Reset(p.Tokens, p.Namespace)
			got.Take(16, p.Blocks.Locals, p.Blocks.Hashes)
			if n := len(p.Tokens) / 16; len(p.Blocks.Hashes) < n || !slices.Equal(got.Hashes(16), want.Hashes(16)) || !slices.Equal(got.Locals(16), want.Locals(16)) {
				t.Errorf("turn %d: %d hashes, want those of %d tokens", i, len(p.Blocks.Hashes), len(p.Tokens))
			}
		}
		read(t, r, Completions, tokenBody(100), &p)
		if len(p.Blocks.Hashes) > 0 {
			t.Errorf("token ids have %d hashes", len(p.Blocks.Hashes))
		}
	}
}

// TestMostTokens: no more tokens are read than requested, nor more than Config allows, and an
// endless text costs little.
func TestMostTokens(t *testing.T) {
	r := testReader(t, Config{Tokenizer: testTokenizer(t), MaxTokens: 1000})
	var p Prompt
	body := []byte(`{"prompt":"` + strings.Repeat("What is light? ", 1000) + `"}`)
	for most, want := range map[int]int{0: 1000, 1: 1, 10: 10, 1000: 1000, 1001: 1000} {
		if err := r.Read(Completions, "", body, As{MaxTokens: most}, &p); err != nil || len(p.Tokens) != want || !p.Truncated || !p.Exact() {
			t.Errorf("at most %d: %d, truncated %v, exact %v, %v", most, len(p.Tokens), p.Truncated, p.Exact(), err)
		}
	}
	long := []byte(`{"prompt":"` + strings.Repeat("x", 1<<20) + `"}`)
	if err := r.Read(Completions, "", long, As{MaxTokens: 10}, &p); err != nil || !p.Truncated || len(p.Tokens) > 10 {
		t.Errorf("one long piece: %d, truncated %v, %v", len(p.Tokens), p.Truncated, err)
	}
}

// TestControlsAsTheWorker: if workers treat control tokens in messages as text, so does the
// reader, token for token.
func TestControlsAsTheWorker(t *testing.T) {
	r := testReader(t, Config{Tokenizer: testTokenizer(t), Template: testTemplate(t, "qwen.jinja")})
	tok := r.cfg.Tokenizer
	controls := tok.ControlTokens()
	if len(controls) == 0 {
		t.Fatal("the tokenizer has no control tokens")
	}
	for _, content := range []string{"x", "a" + controls[0] + "b", strings.Repeat("What is light? ", 40) + controls[len(controls)-1]} {
		body := fmt.Sprintf(`{"messages":[{"role":"user","content":%q},{"role":"assistant","content":"y"},{"role":"user","content":%q}]}`, content, content)
		for _, mode := range []chat.ControlMode{chat.Allow, chat.Text} {
			ask, err := openai.DecodeChat([]byte(body), openai.Options{})
			if err != nil {
				t.Fatal(err)
			}
			ask.Options.Now = testNow
			rendered, err := r.cfg.Template.RenderAs(ask.Messages, ask.Options, chat.NewControls(controls), mode)
			if err != nil {
				t.Fatal(err)
			}
			want, err := tok.NewEncoder().EncodeWith(nil, rendered.Text, tokenizer.Options{Plain: rendered.Plain})
			if err != nil {
				t.Fatal(err)
			}
			var p Prompt
			if err := r.Read(Chat, "", []byte(body), As{MaxTokens: 1 << 20, Controls: mode}, &p); err != nil || !p.Exact() || !slices.Equal(p.Tokens, want) {
				t.Errorf("%v, %.30q: exact %v, %v, %v, want %v", mode, content, p.Exact(), err, p.Tokens, want)
			}
			if (len(rendered.Plain) > 0) != (mode == chat.Text && content != "x") {
				t.Errorf("%v, %.30q: plain at %v", mode, content, rendered.Plain)
			}
		}
	}
}

// TestToolsAsTheWorker: tools that the template does not print are rendered as the workers do that. Other servers leave them out.
func TestToolsAsTheWorker(t *testing.T) {
	r := testReader(t, Config{Tokenizer: testTokenizer(t), Template: testTemplate(t, "plain.jinja")})
	const body = `{"messages":[{"role":"user","content":"When?"}],"tools":[{"type":"function","function":{"name":"clock"}}]}`
	ask, err := openai.DecodeChat([]byte(body), openai.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ask.Options.Now = testNow
	tokens := func(o chat.Options) []kv.Token {
		text, err := r.cfg.Template.Render(ask.Messages, o)
		if err != nil {
			t.Fatal(err)
		}
		return r.cfg.Tokenizer.Encode(nil, text)
	}
	ours := tokens(ask.Options)
	ask.Options.Tools = nil
	for mode, want := range map[chat.ToolsPrompt][]kv.Token{chat.AutoTools: ours, chat.TemplateTools: tokens(ask.Options), chat.NoToolsPrompt: nil} {
		var p Prompt
		if err := r.Read(Chat, "", []byte(body), As{ToolsPrompt: mode}, &p); err != nil || p.Exact() != (want != nil) || p.Exact() && !slices.Equal(p.Tokens, want) {
			t.Errorf("%v: exact %v, %v, %v, want %v", mode, p.Exact(), err, p.Tokens, want)
		}
	}
}

// TestClientsAsTheServer: recorded requests of client libraries are read as the server reads
// them.
func TestClientsAsTheServer(t *testing.T) {
	data, err := os.ReadFile("../../../server/testdata/clients.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	r := testReader(t, Config{Tokenizer: testTokenizer(t), Template: testTemplate(t, "qwen.jinja")})
	for line := range strings.Lines(string(data)) {
		var recorded struct {
			Client string
			Body   json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &recorded); err != nil {
			t.Fatal(err)
		}
		if !agrees(t, r, Chat, recorded.Body, &Prompt{}) {
			t.Errorf("%s: the server refuses it", recorded.Client)
		}
	}
}
