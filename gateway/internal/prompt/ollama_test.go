package prompt

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// TestOllamaPrompt: a conversation has the same blocks as a request to /v1/chat/completions and to /api/chat.
func TestOllamaPrompt(t *testing.T) {
	const long = "What is light? Light is that which makes things seen, and it comes from the sun. "
	for _, tc := range []struct{ openai, ollama string }{
		{`"messages":[{"role":"system","content":"` + long + `"},{"role":"user","content":"x"},{"role":"assistant","content":"y"},{"role":"user","content":"z"}]`,
			`"messages":[{"role":"system","content":"` + long + `"},{"role":"user","content":"x","images":[]},{"role":"assistant","content":"y"},{"role":"user","content":"z"}]`},
		{`"tools":[{"type":"function","function":{"name":"f","description":"D","parameters":{"type":"object","properties":{}}}}],"messages":[{"role":"user","content":"x"},
			{"role":"assistant","content":"","tool_calls":[{"id":"call00001","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]},{"role":"tool","name":"f","tool_call_id":"call00001","content":"` + long + `"}]`,
			`"tools":[{"type":"function","function":{"name":"f","description":"D","parameters":{"type":"object","properties":{}}}}],"messages":[{"role":"user","content":"x"},
			{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"a": 1}}}]},{"role":"tool","tool_name":"f","content":"` + long + `"}]`},
	} {
		for _, name := range []string{"plain.jinja", "qwen.jinja", "llama.jinja"} {
			r := testReader(t, Config{Tokenizer: testTokenizer(t), Template: testTemplate(t, name)})
			var a, b Prompt
			read(t, r, Chat, `{"model":"m","max_tokens":7,"stream":true,`+tc.openai+`}`, &a)
			read(t, r, OllamaChat, `{"model":"m","options":{"num_predict":7},`+tc.ollama+`}`, &b)
			if want, got := hashes(&a), hashes(&b); len(want) == 0 || !slices.Equal(want, got) || !slices.Equal(a.Tokens, b.Tokens) || !b.Exact() || b.Model != "m" || !b.Stream || b.OutputTokens != 7 || b.Choices != 1 {
				t.Errorf("%s %.300s: %d blocks and %d tokens, exact %v (%v), want %d and %d", name, tc.ollama, len(got), len(b.Tokens), b.Exact(), b.Inexact, len(want), len(a.Tokens))
			}
		}
	}
}

// TestOllamaGeneratePrompt: a message has the tokens of a chat, a raw prompt those of a completion, and a context comes first.
func TestOllamaGeneratePrompt(t *testing.T) {
	r := testReader(t, Config{Tokenizer: testTokenizer(t), Template: testTemplate(t, "qwen.jinja")})
	var a, b Prompt
	read(t, r, Chat, `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"x"}]}`, &a)
	if read(t, r, OllamaGenerate, `{"prompt":"x","system":"s","stream":false}`, &b); !slices.Equal(a.Tokens, b.Tokens) || !b.Exact() || b.Stream {
		t.Errorf("%v, exact %v, want %v", b.Tokens, b.Exact(), a.Tokens)
	}
	read(t, r, Completions, `{"prompt":"What is light?"}`, &a)
	if read(t, r, OllamaGenerate, `{"prompt":"What is light?","raw":true}`, &b); !slices.Equal(a.Tokens, b.Tokens) || !b.Exact() || b.Choices != 1 {
		t.Errorf("raw: %v, exact %v, want %v", b.Tokens, b.Exact(), a.Tokens)
	}
	// After an answer comes the text that the template writes there, whatever the answer says.
	turns := []chat.Message{{Role: "user", Content: "q"}, {Role: "assistant", Content: "Zebra."}, {Role: "user", Content: "More"}}
	text, err := r.cfg.Template.Render(turns, chat.Options{AddGenerationPrompt: true, Now: testNow})
	if err != nil {
		t.Fatal(err)
	}
	after := text[strings.LastIndex(text, "Zebra.")+len("Zebra."):]
	context := r.cfg.Tokenizer.Encode(nil, "An answer.")
	want := slices.Concat(context, r.cfg.Tokenizer.Encode(nil, after))
	ids, err := json.Marshal(context)
	if err != nil {
		t.Fatal(err)
	}
	if read(t, r, OllamaGenerate, `{"prompt":"More","context":`+string(ids)+`}`, &b); !slices.Equal(b.Tokens, want) || !b.Exact() {
		t.Errorf("after a context: %v, exact %v (%v), want %v", b.Tokens, b.Exact(), b.Inexact, want)
	}
	if read(t, r, OllamaGenerate, `{"model":"m"}`, &b); len(b.Tokens) > 0 || b.Model != "m" {
		t.Errorf("a request to load the model has tokens %v", b.Tokens)
	}
	if read(t, r, OllamaChat, `{"messages":[{"role":"user","content":"x","images":["aGk="]}]}`, &b); b.Exact() || len(b.Tokens) == 0 {
		t.Errorf("an image: exact %v, %d tokens", b.Exact(), len(b.Tokens))
	}
}
