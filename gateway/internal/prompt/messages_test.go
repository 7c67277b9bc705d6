package prompt

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/anthropic"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/kv"
)

// hashes returns the block hashes of a prompt.
func hashes(p *Prompt) (all []kv.BlockHash) {
	h := kv.NewHasher(p.Namespace, 16)
	for i := 0; i+16 <= len(p.Tokens); i += 16 {
		hash, _ := h.Next(p.Tokens[i : i+16])
		all = append(all, hash)
	}
	return all
}

// TestMessagesPrompt: a conversation has the same blocks as a request to either API, and as the server that computes it has them.
func TestMessagesPrompt(t *testing.T) {
	const long = "What is light? Light is that which makes things seen, and it comes from the sun. "
	for _, tc := range []struct{ openai, anthropic string }{
		{`"messages":[{"role":"user","content":"` + long + `"}]`, `"messages":[{"role":"user","content":"` + long + `"}]`},
		{`"messages":[{"role":"system","content":"` + long + `"},{"role":"user","content":"x"},{"role":"assistant","content":"y"},{"role":"user","content":[{"type":"text","text":"z"}]}]`,
			`"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1; cch=abcde;"},{"type":"text","text":"` + long + `","cache_control":{"type":"ephemeral"}}],
			"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"text","text":"y"}]},{"role":"user","content":[{"type":"text","text":"z","cache_control":{"type":"ephemeral"}}]}]`},
		{`"tools":[{"type":"function","function":{"name":"f","description":"D","parameters":{"type":"object","properties":{}}}}],"messages":[{"role":"user","content":"x"},
			{"role":"assistant","content":"","tool_calls":[{"id":"toolu_12345","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]},{"role":"tool","tool_call_id":"toolu_12345","content":"` + long + `"}]`,
			`"tools":[{"name":"f","description":"D","input_schema":{"type":"object","properties":{}}}],"messages":[{"role":"user","content":"x"},
			{"role":"assistant","content":[{"type":"tool_use","id":"toolu_12345","name":"f","input":{"a": 1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_12345","content":"` + long + `"}]}]`},
		{`"continue_final_message":true,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"` + long + `"}]`, `"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"` + long + `"}]`},
	} {
		for _, name := range []string{"plain.jinja", "qwen.jinja", "llama.jinja"} {
			r := testReader(t, Config{Tokenizer: testTokenizer(t), Template: testTemplate(t, name)})
			var a, b Prompt
			read(t, r, Chat, `{"model":"m","max_tokens":7,"stream":true,`+tc.openai+`}`, &a)
			read(t, r, Messages, `{"model":"m","max_tokens":7,"stream":true,`+tc.anthropic+`}`, &b)
			if want, got := hashes(&a), hashes(&b); len(want) == 0 || !slices.Equal(want, got) || !slices.Equal(a.Tokens, b.Tokens) || !b.Exact() || b.Model != "m" || !b.Stream || b.OutputTokens != 7 || b.Choices != 1 {
				t.Errorf("%s %.300s: %d blocks and %d tokens, exact %v (%v), want %d and %d", name, tc.anthropic, len(got), len(b.Tokens), b.Exact(), b.Inexact, len(want), len(a.Tokens))
			}
			ask, err := anthropic.Decode([]byte(`{"max_tokens":7,`+tc.anthropic+`}`), anthropic.Options{})
			if err != nil {
				t.Fatal(err)
			}
			ask.Options.Now = testNow
			text, err := r.cfg.Template.Render(ask.Messages, ask.Options)
			if err == nil {
				text, err = ask.CutFinal(text)
			}
			if want := r.cfg.Tokenizer.Encode(nil, text); err != nil || !slices.Equal(want, b.Tokens) {
				t.Errorf("%s %.300s: the server has %d tokens (%v), want %d", name, tc.anthropic, len(want), err, len(b.Tokens))
			}
		}
	}
}

// TestMessagesInexact: a request that a worker may refuse is routed by a guess, and only a body that is no JSON is an error.
func TestMessagesInexact(t *testing.T) {
	r := testReader(t, Config{Tokenizer: testTokenizer(t), Template: testTemplate(t, "plain.jinja")})
	var p, q Prompt
	image := func(data string) string {
		return `{"messages":[{"role":"user","content":[{"type":"image","source":{"data":"` + data + `"}},{"type":"text","text":"x"}]}]}`
	}
	read(t, r, Messages, image("A"), &p)
	read(t, r, Messages, image("B"), &q)
	if p.Exact() || p.Inexact == nil || !strings.Contains(p.Inexact.Error(), "messages[0].content[0]") || slices.Equal(p.Tokens, q.Tokens) {
		t.Errorf("exact %v, %v; %d and %d tokens", p.Exact(), p.Inexact, len(p.Tokens), len(q.Tokens))
	}
	for _, body := range []string{`{"messages":7}`, `{"messages":[]}`, `{}`, `{"messages":[{"role":"x","content":{}}],"tools":[7],"system":7,"thinking":1,"unknown":1}`} {
		if read(t, r, Messages, body, &p); p.Exact() {
			t.Errorf("%s is exact", body)
		}
	}
	for _, body := range []string{"", "{", "[]", `{"messages":`} {
		var e *conversation.Error
		if err := r.Read(Messages, "", []byte(body), As{}, &p); !errors.As(err, &e) || e.Status != 400 {
			t.Errorf("%s: %v", body, err)
		}
	}
}
