package jsonschema

import (
	"errors"
	"math/rand"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/grammar"
)

func callText(name, arguments string) string {
	return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>"
}

// TestCalls checks that the rules match calls of the given tools, up to Most, and nothing else.
func TestCalls(t *testing.T) {
	weather := offeredTool{"weather", []byte(`{"type":"object","properties":{"city":{"type":"string"},"in":{"$ref":"#/$defs/unit"}},"required":["city"],"$defs":{"unit":{"enum":["C","F"]}}}`)}
	tree := offeredTool{"a.tree", []byte(`{"properties":{"left":{"$ref":"#"},"n":{"type":"integer"}},"additionalProperties":false}`)}
	calls := offered{Tools: []offeredTool{weather, tree, {"now", nil}, {"any", []byte(`{}`)}}, Most: 2}
	rules, err := calls.Rules(Config{})
	if err != nil {
		t.Fatal(err)
	}
	one := callText("weather", `{"city": "Paris", "in": "C"}`)
	for text, want := range map[string]bool{
		one:                                     true,
		callText("weather", `{"city":"Paris"}`): true,
		callText("weather", `{"in": "C"}`):      false,
		callText("weather", `{"city": "Paris", "in": "K"}`): false,
		callText("a.tree", `{"left": {"left": {"n": 1}}}`):  true,
		callText("a.tree", `{"left": {"city": "Paris"}}`):   false,
		callText("a.tree", `{"city": "Paris"}`):             false,
		callText("now", `{}`):                               true,
		callText("now", `{"a": 1}`):                         false,
		callText("any", `{"a": [1]}`):                       true,
		callText("any", `1`):                                false,
		callText("any", `{ "a":1, "b": [1,2 ] }`):           true,
		callText("any", "{\n\t\"a\": 1}"):                   false,
		callText("other", `{}`):                             false,
		one + "\n" + callText("now", "{}"):                  true,
		one + callText("now", "{}"):                         false,
		one + "\n":                                          false,
		one + "\n" + one + "\n" + one:                       false,
		"":                                                  false,
		`{"ok": true}`:                                      false,
		"Let me see.\n" + one:                               false,
		strings.Replace(one, "</tool_call>", "</tool>", 1):  false,
	} {
		if got := matches(rules, text); got != want {
			t.Errorf("match of %s is %v", text, got)
		}
	}
	calls.Answer = []byte(`{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}`)
	if rules, err = calls.Rules(Config{}); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{one: true, `{"ok": true}`: true, `{}`: false, one + `{"ok": true}`: false} {
		if got := matches(rules, text); got != want {
			t.Errorf("with an answer, match of %s is %v", text, got)
		}
	}
}

// TestCallsWritten writes random texts that the compiled rules allow. Each complete text must
// consist of calls.
func TestCallsWritten(t *testing.T) {
	v, r := tokens(), rand.New(rand.NewSource(5))
	rules, err := offered{Tools: []offeredTool{{"one", []byte(`{"properties":{"a":{"type":"integer"},"b":{"enum":["x","y"]}},"required":["a","b"]}`)}, {"two", nil}}, Most: 3}.Rules(Config{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := grammar.NewCompiler(v, rules, grammar.Limits{})
	for done := false; err == nil && !done; {
		done, err = c.Run(1 << 20)
	}
	if err != nil {
		t.Fatal(err)
	}
	m := c.Grammar().NewMatcher()
	for range 20 {
		m.Reset()
		text, ok := write(t, "calls", m, v, r)
		if n := strings.Count(text, "</tool_call>"); ok && (n < 1 || n > 3 || !matches(rules, text)) {
			t.Errorf("wrote %q", text)
		}
	}
}

// TestCallsRefused checks that an error names the tool whose schema is refused.
func TestCallsRefused(t *testing.T) {
	for _, c := range []struct {
		calls offered
		is    error
		says  string
	}{
		{offered{Most: 1}, ErrSchema, "0 tools"},
		{offered{Tools: []offeredTool{{"a", nil}}}, ErrSchema, "0 calls"},
		{offered{Tools: []offeredTool{{"a", nil}, {"b", []byte(`{"not":{}}`)}}, Most: 1}, ErrUnsupported, `tool "b"`},
		{offered{Tools: []offeredTool{{"a", []byte(`{"type":"string"}`)}}, Most: 1}, ErrSchema, "no value"},
		{offered{Tools: []offeredTool{{"a", []byte(`{"type":"object","properties":{"x":false},"required":["x"]}`)}}, Most: 1}, ErrSchema, `tool "a"`},
		{offered{Tools: []offeredTool{{"a", nil}}, Most: 1, Answer: []byte(`{"not":{}}`)}, ErrUnsupported, "not"},
	} {
		if _, err := c.calls.Rules(Config{}); !errors.Is(err, c.is) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c.calls, err)
		}
	}
	var many []offeredTool
	for range 40 {
		many = append(many, offeredTool{"a", []byte(`{}`)})
	}
	if _, err := (offered{Tools: many, Most: 1}).Rules(Config{MaxSize: 500}); !errors.Is(err, ErrLimit) {
		t.Errorf("80 tools in 500 expressions: %v", err)
	}
	// The config is checked even if no tool has parameters.
	if _, err := (offered{Tools: []offeredTool{{"now", nil}}, Most: 1}).Rules(Config{MaxSize: -1}); err == nil || !strings.Contains(err.Error(), "MaxSize") {
		t.Errorf("MaxSize of -1: %v", err)
	}
}
