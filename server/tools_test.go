package server

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// TestToolsPrompt: with a template that prints no tools, the server describes them itself, in the first turn and after a result, or
// refuses the request. It never answers as if there were none. The card has the mode.
func TestToolsPrompt(t *testing.T) {
	const template = `{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}`
	const tools = `,"tools":[{"type":"function","function":{"name":"clock","description":"Tells the time."}}]`
	const user = `{"role":"user","content":"When?"}`
	const history = user + `,{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"clock","arguments":"{\"zone\":\"UTC\"}"}}]},{"role":"tool","tool_call_id":"call_1","content":"nine"}`
	const called = "assistant: <tool_call>\n{\"name\": \"clock\", \"arguments\": {\"zone\": \"UTC\"}}\n</tool_call>\nuser: <tool_response>\nnine\n</tool_response>\nassistant: "
	for _, mode := range []chat.ToolsPrompt{chat.AutoTools, chat.TemplateTools, chat.NoToolsPrompt} {
		b := start(t, setup{Server: Config{Template: (&bed{TB: t}).template(template, chat.Limits{}), ToolsPrompt: mode, Card: &card.Card{Name: "w", Models: []string{"nano"}}}})
		for _, tc := range []struct{ name, body, want string }{
			{"first turn", `[` + user + `]` + tools, "Tells the time."},
			{"second turn", `[` + history + `]` + tools, called},
			{"no tools", `[` + user + `]`, "user: When?\nassistant: "},
			{"tool_choice none", `[` + history + `],"tool_choice":"none"` + tools, called},
			{"history alone", `[` + history + `]`, called},
		} {
			body := `{"messages":` + tc.body + `,"max_tokens":1,"ignore_eos":true,"return_token_ids":true}`
			switch offered := strings.Contains(tc.body, "tools") && !strings.Contains(tc.body, "none"); {
			case tc.name == "no tools", mode == chat.AutoTools, mode == chat.TemplateTools && !offered:
			default:
				a := b.refused("POST", "/v1/chat/completions", body, 400, "tools_dropped")
				if !strings.Contains(string(a.body), "chat template") || !strings.Contains(string(a.body), "--tools-prompt auto") {
					t.Errorf("%v, %s: %s", mode, tc.name, a.body)
				}
				continue
			}
			var r struct {
				Prompt []kv.Token `json:"prompt_token_ids"`
			}
			a := b.do("POST", "/v1/chat/completions", body)
			if err := json.Unmarshal(a.body, &r); a.StatusCode != 200 || err != nil {
				t.Fatalf("%v, %s: %s %s", mode, tc.name, a.Status, a.body)
			}
			want := tc.want
			if mode == chat.TemplateTools && want == called {
				want = "assistant: \ntool: nine\nassistant: " // as the template has it
			}
			if text := string(b.tok.Decode(nil, r.Prompt, false)); !strings.HasSuffix(text, want) && (want == called || !strings.Contains(text, want)) {
				t.Errorf("%v, %s: %q, want %q", mode, tc.name, text, want)
			}
		}
		var own card.Card
		b.ok(json.Unmarshal(b.do("GET", card.Path, "").body, &own))
		if own.ToolsPrompt != mode.String() {
			t.Errorf("the card says %q, want %v", own.ToolsPrompt, mode)
		}
	}
}

// TestRepeatedCalls: at temperature 0 the turn ends when a call is repeated: the client gets it once, and the rest is not computed.
func TestRepeatedCalls(t *testing.T) {
	b := start(t, setup{Server: Config{Template: (&bed{TB: t}).template(`{% for m in messages %}{{ m.content }}{% endfor %}`, chat.Limits{})}})
	// The grammar leaves the model one text for a call, and min_tokens keeps it from ending.
	const ask = `{"messages":[{"role":"user","content":"When?"}],"tools":[{"type":"function","function":{"name":"clock","parameters":{"type":"object",
		"properties":{"zone":{"const":"UTC"}},"required":["zone"],"additionalProperties":false}}}],"tool_choice":"required","min_tokens":600,"max_tokens":600,"temperature":`
	type answer struct {
		Choices []struct {
			Message struct {
				Calls []json.RawMessage `json:"tool_calls"`
			}
			Reason string `json:"finish_reason"`
		}
		Usage struct {
			Output int `json:"completion_tokens"`
		}
	}
	get := func(body string) (a answer) {
		t.Helper()
		got := b.do("POST", "/v1/chat/completions", body)
		if err := json.Unmarshal(got.body, &a); got.StatusCode != 200 || err != nil {
			t.Fatalf("%s %s", got.Status, got.body)
		}
		return a
	}
	many := get(ask + `0.01,"seed":1}`)
	if n := len(many.Choices[0].Message.Calls); n < 2 {
		t.Fatalf("%d calls at a temperature above 0, want several", n)
	}
	for _, n := range []string{`0}`, `0,"n":2}`} {
		// The scheduler goes on until the server has seen the call's repetition, on a busy machine to the end.
		early := func() bool {
			once := get(ask + n)
			for _, c := range once.Choices {
				if len(c.Message.Calls) != 1 || c.Reason != "tool_calls" {
					t.Errorf("%s: %d calls, finish_reason %s", n, len(c.Message.Calls), c.Reason)
				}
			}
			got := once.Usage.Output
			return got > 0 && got <= many.Usage.Output*len(once.Choices)/2
		}
		for try := 1; !early(); try++ {
			if try == 20 {
				t.Errorf("%s: none of %d answers ends before half of the tokens of several calls are computed", n, try)
				break
			}
		}
	}
	events := string(b.do("POST", "/v1/chat/completions", ask+`0,"stream":true,"stream_options":{"include_usage":true}}`).body)
	if strings.Count(events, `"name":"clock"`) != 1 || !strings.Contains(events, `"finish_reason":"tool_calls"`) || !strings.HasSuffix(events, "data: [DONE]\n\n") {
		t.Errorf("%s", events)
	}
	b.until(func(s *coppice.Stats) bool { return s.Scheduler.Running == 0 && b.unused() == 0 })
}
