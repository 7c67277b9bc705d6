package openai

import (
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsonbody"
)

// TestClip: a clipped text is valid UTF-8.
func TestClip(t *testing.T) {
	long := strings.Repeat("a", 63)
	for in, want := range map[string]string{long + "é": long + "…", long + "ab": long + "a…", long + "b": long + "b", "\xff": "\xff"} {
		if got := jsonbody.Clip(in); got != want {
			t.Errorf("jsonbody.Clip(%q) is %q, want %q", in, got, want)
		}
	}
}

// TestFillWrapper: a list that is the only property of an answer is always written, empty if
// need be, as instructor's create_iterable expects; other schemas are unchanged.
func TestFillWrapper(t *testing.T) {
	const list = `"tasks":{"type":"array","items":{"type":"integer"}}`
	for _, tc := range []struct{ schema, want string }{
		{`{"type":"object","properties":{` + list + `}}`, `{"properties":{` + list + `},"required":["tasks"],"type":"object"}`},
		{`{"type":"object","properties":{` + list + `},"required":[]}`, `{"properties":{` + list + `},"required":["tasks"],"type":"object"}`},
		{`{"type":"object","properties":{` + list + `},"required":["tasks"]}`, ""},
		{`{"type":"object","properties":{` + list + `,"note":{"type":"string"}}}`, ""},
		{`{"type":"object","properties":{"note":{"type":"string"}}}`, ""},
		{`{"type":"object","properties":{"tasks":true}}`, ""}, {`{"properties":5}`, ""}, {`true`, ""}, {"", ""},
	} {
		want := tc.want
		if want == "" {
			want = tc.schema
		}
		if got := string(conversation.FillWrapper([]byte(tc.schema))); got != want {
			t.Errorf("%s gives %s, want %s", tc.schema, got, want)
		}
	}
	const parameters = `{"$defs":{"User":{"type":"object"}},"properties":{"tasks":{"items":{"$ref":"#/$defs/User"},"type":"array"}},"type":"object","required":[]}`
	body := `{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"IterableUser","parameters":` + parameters + `}}],"tool_choice":`
	for choice, want := range map[string]bool{`{"type":"function","function":{"name":"IterableUser"}}`: true, `"required"`: false} {
		c, err := DecodeChat([]byte(body+choice+"}"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(c.Format.Calls, `"required":["tasks"]`); got != want {
			t.Errorf("tool_choice %s: the list is required: %v, want %v", choice, got, want)
		}
	}
	c, err := DecodeChat([]byte(`{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"name":"IterableUser","schema":`+parameters+`}}}`), Options{})
	if err != nil || !strings.Contains(c.Format.JSONSchema, `"required":["tasks"]`) {
		t.Errorf("response_format: %v, %v", c, err)
	}
}

// TestCallFormat: a call is held in the form of Options.CallForm, with auto too unless the request
// has a format of its own; Open marks only formats of auto.
func TestCallFormat(t *testing.T) {
	const body = `{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}}]`
	for _, c := range []struct{ more, form, want, opened string }{
		{``, "hermes", `{"auto":true,"tools":[{"name":"f"}],"most":8}`, `{"auto":true,"opened":true,"tools":[{"name":"f"}],"most":8}`},
		{`,"tool_choice":"auto","parallel_tool_calls":false`, "mistral", `{"auto":true,"form":"mistral","tools":[{"name":"f"}],"most":1}`, `{"auto":true,"opened":true,"form":"mistral","tools":[{"name":"f"}],"most":1}`},
		{`,"tool_choice":"required"`, "mistral", `{"form":"mistral","tools":[{"name":"f"}],"most":8}`, `{"form":"mistral","tools":[{"name":"f"}],"most":8}`},
		{`,"tool_choice":"none"`, "mistral", "", ""},
		{`,"guided_regex":"a"`, "mistral", "", ""},
		{`,"allowed_token_ids":[1]`, "mistral", "", ""},
	} {
		chat, err := DecodeChat([]byte(body+c.more+"}"), Options{CallForm: c.form})
		if err != nil {
			t.Fatal(err)
		}
		if chat.Format.Calls != c.want {
			t.Errorf("%s: %s, want %s", c.more, chat.Format.Calls, c.want)
		}
		if chat.Format.Open(); chat.Format.Calls != c.opened {
			t.Errorf("%s: opened %s, want %s", c.more, chat.Format.Calls, c.opened)
		}
	}
}
