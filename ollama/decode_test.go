package ollama

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/conversation"
)

// TestHarmlessIsSorted: the list is searched by halves.
func TestHarmlessIsSorted(t *testing.T) {
	if !slices.IsSorted(harmless) {
		t.Errorf("want %q", slices.Sorted(slices.Values(harmless)))
	}
}

// TestDecodeChat: a request with everything that clients send becomes a turn.
func TestDecodeChat(t *testing.T) {
	c, err := DecodeChat([]byte(`{"model":"m:latest","messages":[
		{"role":"system","content":"Be brief."},
		{"role":"user","content":"Weather?","images":[]},
		{"role":"assistant","content":"","thinking":"Two calls.","tool_calls":[{"function":{"name":"weather","arguments":{"city":"Paris"}}},{"index":1,"id":"own","type":"function","function":{"index":1,"name":"clock","arguments":"{}"}}]},
		{"role":"tool","tool_name":"clock","content":"12"},
		{"role":"tool","tool_name":"weather","content":"Sun"}],
		"tools":[{"type":"function","function":{"name":"weather","description":"d","parameters":{"type":"object","properties":{}}}}],
		"options":{"num_predict":-1,"temperature":0.5,"top_k":-1,"top_p":0,"repeat_penalty":1.1,"seed":-1,"stop":["a","b"],"num_ctx":4096,"mirostat":2},
		"format":"","keep_alive":"5m","think":"high"}`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !c.Stream || c.Unload || c.Model != "m:latest" || c.MaxTokens != 0 || c.Seeded || c.Sampling.TopK != 0 || !(c.Sampling.TopP > 0) || c.Sampling.Temperature != 0.5 {
		t.Errorf("%+v", c.Params)
	}
	if got := c.Messages; len(got) != 5 || got[2].Reasoning != "Two calls." || got[2].ToolCalls[0].ID != "call00001" || got[3].ToolCallID != "own" || got[4].ToolCallID != "call00001" || got[4].Name != "weather" {
		t.Errorf("messages %+v", c.Messages)
	}
	if want := []string{"options.num_ctx", "options.mirostat", "keep_alive"}; !slices.Equal(c.Ignored, want) {
		t.Errorf("ignored %q, want %q", c.Ignored, want)
	}
	if v := c.Options.Variables; string(v["enable_thinking"]) != "true" || string(v["reasoning_effort"]) != `"high"` {
		t.Errorf("variables %s", v)
	}
	if c.Calls != conversation.AnyCalls || c.Format.Calls == "" || len(c.Options.Tools) != 1 {
		t.Errorf("calls %v, format %+v", c.Calls, c.Format)
	}
}

// TestFormatBesideTools: a schema holds the answer, and calls stay possible.
func TestFormatBesideTools(t *testing.T) {
	c, err := DecodeChat([]byte(`{"model":"m","messages":[{"role":"user","content":"x"}],"format":{"type": "object"},"tools":[{"type":"function","function":{"name":"f"}}]}`), Options{})
	if err != nil || !strings.Contains(c.Format.Calls, `"answer":{"type":"object"}`) {
		t.Errorf("%v, format %+v", err, c)
	}
}

// TestDecodeGenerate: the prompt becomes a message, and the context takes the place of the system prompt.
func TestDecodeGenerate(t *testing.T) {
	g, err := DecodeGenerate([]byte(`{"model":"m","prompt":"Hello","system":"Be brief.","stream":false,"keep_alive":0,"suffix":"","template":""}`), Options{})
	if err != nil || len(g.Messages) != 2 || g.Messages[0].Role != "system" || g.Stream || !g.Unload || g.Empty() {
		t.Errorf("%v %+v", err, g)
	}
	g, err = DecodeGenerate([]byte(`{"model":"m","prompt":"More","system":"Be brief.","context":[1,2,3]}`), Options{})
	if err != nil || len(g.Messages) != 1 || len(g.Context) != 3 {
		t.Fatalf("%v %+v", err, g)
	}
	_, rest := g.NextTurn()
	if text, from := rest("<user>An earlier question.<assistant>An earlier answer.<end><user>More"); text != "<end><user>More" || from != 55 {
		t.Errorf("the turn after a context is %q from %d", text, from)
	}
	if text, from := rest("<user>More"); text != "<user>More" || from != 0 {
		t.Errorf("of another template: %q from %d", text, from)
	}
	if got := Shifted([]int{3, 9, 20}, 9); !slices.Equal(got, []int{0, 11}) {
		t.Errorf("offsets %v", got)
	}
}

// TestRefusals: each fault names its field.
func TestRefusals(t *testing.T) {
	const chat, generate = `{"model":"m","messages":[{"role":"user","content":"x"}],`, `{"model":"m","prompt":"x",`
	for _, tc := range []struct{ body, param, code string }{
		{chat + `"color":1}`, "color", "unknown_parameter"},
		{chat + `"options":{"colour":1}}`, "options.colour", "unknown_parameter"},
		{chat + `"options":{"temperature":"hot"}}`, "options.temperature", "invalid_type"},
		{chat + `"options":{"top_p":2}}`, "options.top_p", "invalid_value"},
		{chat + `"options":[]}`, "options", "invalid_type"},
		{chat + `"format":"xml"}`, "format", "invalid_value"},
		{chat + `"format":[]}`, "format", "invalid_type"},
		{chat + `"think":7}`, "think", "invalid_type"},
		{chat + `"think":"much"}`, "think", "invalid_value"},
		{chat + `"images":["aGk="]}`, "images", conversation.Unsupported},
		{chat + `"top_logprobs":3}`, "top_logprobs", "invalid_value"},
		{chat + `"tools":[{"type":"function"}]}`, "tools[0].function", "missing_required_parameter"},
		{`{"messages":[]}`, "model", "missing_required_parameter"},
		{`{"model":"m","messages":[{"content":"x"}]}`, "messages[0].role", "missing_required_parameter"},
		{`{"model":"m","messages":[{"role":"robot","content":"x"}]}`, "messages[0].role", "invalid_value"},
		{`{"model":"m","messages":[{"role":"user","content":"x","images":["aGk="]}]}`, "messages[0].images", conversation.Unsupported},
		{`{"model":"m","messages":[{"role":"user","content":[]}]}`, "messages[0].content", "invalid_type"},
		{`{"model":"m","messages":[{"role":"user","content":"x","tool_calls":[{"function":{"name":"f"}}]}]}`, "messages[0].tool_calls", "invalid_value"},
		{`{"model":"m","messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":{}}}]}]}`, "messages[0].tool_calls[0].function.name", "missing_required_parameter"},
		{`{"model":"m","messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":7}}]}]}`, "messages[0].tool_calls[0].function.arguments", "invalid_type"},
		{generate + `"suffix":"y"}`, "suffix", conversation.Unsupported},
		{generate + `"template":"{{ .Prompt }}"}`, "template", conversation.Unsupported},
		{generate + `"context":[-1]}`, "context[0]", "invalid_value"},
		{generate + `"messages":[]}`, "messages", "unknown_parameter"},
		{`{`, "", "invalid_json"},
	} {
		_, err := DecodeChat([]byte(tc.body), Options{})
		if strings.HasPrefix(tc.body, generate) {
			_, err = DecodeGenerate([]byte(tc.body), Options{})
		}
		var e *conversation.Error
		if !errors.As(err, &e) || e.Param != tc.param || e.Code != tc.code || e.Status != 400 {
			t.Errorf("%s: %v at %+v, want %s at %q", tc.body, err, e, tc.code, tc.param)
		}
	}
}

// TestPeek: a proxy reads what a server reads, and doubts what a server refuses.
func TestPeek(t *testing.T) {
	p, err := PeekChat([]byte(`{"model":"m","stream":false,"messages":[{"role":"user","content":"x"}],"options":{"num_predict":7},"think":true}`))
	if err != nil || p.Doubt != nil || p.Model != "m" || p.Stream || p.MaxTokens != 7 || len(p.Messages) != 1 || string(p.Options.Variables["thinking"]) != "true" {
		t.Errorf("%v %+v", err, p)
	}
	if p, err = PeekChat([]byte(`{"messages":[{"role":"user","content":7}]}`)); err != nil || p.Doubt == nil {
		t.Errorf("%v %+v", err, p)
	}
	if p, err = PeekGenerate([]byte(`{"prompt":"x","raw":true,"context":[1]}`)); err != nil || !p.Raw || p.Text != "x" || p.Context != nil {
		t.Errorf("%v %+v", err, p)
	}
	if _, err = PeekChat([]byte(`[]`)); err == nil {
		t.Error("a body that is no object has no error")
	}
}

// TestDocumentHasAllFields: the document has exactly the fields that are read, and refers to schemas that it has.
func TestDocumentHasAllFields(t *testing.T) {
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(Document, &doc); err != nil {
		t.Fatal(err)
	}
	for schema, tables := range map[string][]map[string]setter{"OllamaChatRequest": {chatFields, shared}, "OllamaGenerateRequest": {generateFields, shared}, "OllamaOptions": {options}} {
		var want []string
		for _, table := range tables {
			want = slices.AppendSeq(want, maps.Keys(table))
		}
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(doc.Components.Schemas[schema].Properties)); !slices.Equal(got, want) {
			t.Errorf("%s has\n%q, read are\n%q", schema, got, want)
		}
	}
}
