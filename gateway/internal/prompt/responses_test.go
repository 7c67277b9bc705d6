package prompt

import (
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/openai/responses"
)

// TestResponsesPrompt: a conversation has the same blocks over /v1/responses as over /v1/chat/completions, and as the server that
// computes it has them.
func TestResponsesPrompt(t *testing.T) {
	const long = "What is light? Light is that which makes things seen, and it comes from the sun. "
	for _, tc := range []struct{ chat, responses string }{
		{`"messages":[{"role":"user","content":"` + long + `"}]`, `"input":"` + long + `"`},
		{`"messages":[{"role":"system","content":"` + long + `"},{"role":"user","content":"x"},{"role":"assistant","content":"y"},{"role":"user","content":"z"}]`,
			`"instructions":"` + long + `","input":[{"role":"user","content":"x"},{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"y","annotations":[]}]},{"role":"user","content":[{"type":"input_text","text":"z"}]}]`},
		{`"tools":[{"type":"function","function":{"name":"f","description":"D","parameters":{"type":"object","properties":{}}}}],"messages":[{"role":"user","content":"x"},
			{"role":"assistant","content":"","tool_calls":[{"id":"call_12345","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]},{"role":"tool","tool_call_id":"call_12345","content":"` + long + `"}]`,
			`"tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{}},"strict":true,"description":"D"}],"input":[{"role":"user","content":"x"},
			{"type":"function_call","id":"fc_1","call_id":"call_12345","name":"f","arguments":"{\"a\": 1}"},{"type":"function_call_output","call_id":"call_12345","output":"` + long + `"}]`},
	} {
		for _, name := range []string{"plain.jinja", "qwen.jinja", "llama.jinja"} {
			r := testReader(t, Config{Tokenizer: testTokenizer(t), Template: testTemplate(t, name)})
			var a, b Prompt
			read(t, r, Chat, `{"model":"m","max_tokens":7,"stream":true,`+tc.chat+`}`, &a)
			read(t, r, Responses, `{"model":"m","max_output_tokens":7,"stream":true,`+tc.responses+`}`, &b)
			if want, got := hashes(&a), hashes(&b); len(want) == 0 || !slices.Equal(want, got) || !b.Exact() || b.Model != "m" || !b.Stream || b.OutputTokens != 7 || b.Choices != 1 || b.Names != "" {
				t.Errorf("%s %.300s: %d blocks and %d tokens, exact %v (%v), want %d and %d", name, tc.responses, len(got), len(b.Tokens), b.Exact(), b.Inexact, len(want), len(a.Tokens))
			}
			ask, err := responses.Decode([]byte(`{`+tc.responses+`}`), responses.Options{})
			if err != nil {
				t.Fatal(err)
			}
			ask.Options.Now = testNow
			text, err := r.cfg.Template.Render(ask.Messages, ask.Options)
			if want := r.cfg.Tokenizer.Encode(nil, text); err != nil || !slices.Equal(want, b.Tokens) {
				t.Errorf("%s %.300s: the server has %d tokens (%v), want %d", name, tc.responses, len(want), err, len(b.Tokens))
			}
		}
	}
}

// TestResponsesNames: a request that continues a stored response names it, and its prompt is a guess.
func TestResponsesNames(t *testing.T) {
	r := testReader(t, Config{Tokenizer: testTokenizer(t), Template: testTemplate(t, "plain.jinja")})
	var p Prompt
	read(t, r, Responses, `{"input":"x","previous_response_id":"resp_1","prompt_cache_key":"k","user":"u"}`, &p)
	if p.Names != "resp_1" || p.Exact() || p.Session != "k" {
		t.Errorf("it names %q, exact %v, session %q", p.Names, p.Exact(), p.Session)
	}
	if read(t, r, Responses, `{"input":"x"}`, &p); p.Names != "" || !p.Exact() {
		t.Errorf("the next one names %q, exact %v", p.Names, p.Exact())
	}
}
