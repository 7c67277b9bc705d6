package actors

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/grammar/jsonschema"
	"github.com/coppice-llm/coppice/scheduler"
)

// calls returns the format of a description of tool calls.
func calls(text string) grammar.Format {
	return grammar.Format{Language: jsonschema.ToolCalls, Text: text}
}

// TestCallFormats: a format of jsonschema.ToolCalls names a form and the text around calls. With auto, no schema fails
// the request: a tool whose schema is refused, by its keywords or its size, takes any object.
func TestCallFormats(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	var optional []string
	for i := range 300 {
		optional = append(optional, fmt.Sprintf(`"p%d":{"type":"integer"}`, i))
	}
	ambiguous := `{"properties":{` + strings.Join(optional, ",") + `,"last":{"type":"integer"}},"required":["last"]}`
	const f = `"tools":[{"name":"f","parameters":{"properties":{"n":{"type":"integer"}},"required":["n"]}}],"most":1}`
	for _, c := range []struct{ calls, takes, refuses string }{
		{`{` + f, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>", "Hello"},
		{`{"auto":true,` + f, "Hello <tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"m"},
		{`{"auto":true,"opened":true,` + f, "<tool_call> is a mark.</think>Hello", "</think><tool_call> is a mark"},
		{`{"auto":true,"form":"mistral",` + f, `Hello [TOOL_CALLS][{"name": "f", "arguments": {"n": 1}}]`, "[TOOL_CALLS] "},
		{`{"form":"functionary_v3.1",` + f, `<function=f>{"n": 1}</function>`, "<tool_call>"},
		{`{"auto":true,"tools":[{"name":"f","parameters":{"not":{}}}],"most":2}`, `{"name": "f", "arguments": {"x": []}}`, `{"name": "f", "arguments": 5`},
		{`{"auto":true,"tools":[{"name":"f","parameters":` + ambiguous + `}],"most":2}`, `{"name": "f", "arguments": {"x": []}}`, `{"name": "f", "arguments": 5`},
	} {
		g, err := (&compilerActor{s}).compile(&compile{format: calls(c.calls)})
		if err != nil {
			t.Errorf("%.80s: %v", c.calls, err)
			continue
		}
		if m := g.NewMatcher(); !m.AcceptBytes([]byte(c.takes)) || !m.CanEnd() {
			t.Errorf("%.80s: %q is refused", c.calls, c.takes)
		}
		if g.NewMatcher().AcceptBytes([]byte(c.refuses)) {
			t.Errorf("%.80s: %q is allowed", c.calls, c.refuses)
		}
	}
	for _, text := range []string{
		`{"form":"none",` + f, `{"auto":true,"form":"none",` + f, `{"auto":true,"tools":[],"most":1}`, `{"auto"`,
		`{"tools":[{"name":"f","parameters":{"not":{}}}],"most":2}`, `{"tools":[{"name":"f","parameters":` + ambiguous + `}],"most":2}`,
	} {
		if _, err := (&compilerActor{s}).compile(&compile{format: calls(text)}); !errors.Is(err, scheduler.ErrInvalid) {
			t.Errorf("%.80s: %v", text, err)
		}
	}
}
