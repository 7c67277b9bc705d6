package chat

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// golden is testdata/golden.json: outputs of Jinja for templates. See testdata/golden.py.
type golden struct {
	MadeWith  struct{ Jinja2 string } `json:"made_with"`
	Variables map[string]json.RawMessage
	Singles   []single
	Chats     []chatCase
}

// outcome is the result of a template in Jinja. One field is set: Text to the output, Refused to
// the message of raise_exception, or Error to another error.
type outcome struct {
	Text           *string
	Refused, Error string
}

type single struct {
	Template string
	outcome
}

type chatCase struct {
	Template string
	Messages []json.RawMessage
	Options  map[string]json.RawMessage
	outcome
}

// goldenNow is the value of now in golden.py.
var goldenNow = time.Date(2025, 3, 7, 4, 5, 6, 0, time.UTC)

func readGolden(t testing.TB) golden {
	t.Helper()
	data, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Singles) < 300 || len(g.Chats) < 200 || g.MadeWith.Jinja2 == "" {
		t.Fatalf("golden.json holds too little: %d singles, %d chats", len(g.Singles), len(g.Chats))
	}
	return g
}

// check compares the result of a template, the text got or err, with Jinja's. what names the
// template in a failure.
func (o *outcome) check(t *testing.T, what, got string, err error) {
	t.Helper()
	switch {
	case o.Text != nil && err != nil:
		t.Errorf("%s\n  error %v\n   want %q", what, err, *o.Text)
	case o.Text != nil && got != *o.Text:
		t.Errorf("%s\n    got %q\n   want %q", what, got, *o.Text)
	case o.Refused != "" && (!errors.Is(err, ErrRefused) || !strings.HasSuffix(err.Error(), ": "+o.Refused)):
		t.Errorf("%s\n    got %q, %v\n   want it to be refused: %s", what, got, err, o.Refused)
	case o.Error != "" && !errors.Is(err, ErrRender) && !errors.Is(err, ErrInvalid):
		t.Errorf("%s\n    got %q, %v\n   want the error %s", what, got, err, o.Error)
	}
}

// unsupported lists the templates of golden.json that are refused by name.
var unsupported = []string{
	`{{ nums[0:2,] }}`, `{{ i.real }}`, `{{ 1 | nope }}`, `{{ '{:>3}'.format(1) }}`, `{{ '{a.b}'.format(a=1) }}`, `{% if t %}{{ 1 | nope }}{% endif %}`,
}

func TestExpressionsMatchJinja(t *testing.T) {
	g := readGolden(t)
	for _, c := range g.Singles {
		got, err := renderWith(c.Template, g.Variables)
		if errors.Is(err, ErrUnsupported) {
			if !slices.Contains(unsupported, c.Template) {
				t.Errorf("%s\n  error %v", c.Template, err)
			}
			continue
		}
		c.check(t, c.Template, got, err)
	}
}

// renderWith renders a template that only sees variables.
func renderWith(template string, variables map[string]json.RawMessage) (string, error) {
	p, err := parse(template, Limits{}.WithDefaults())
	if err != nil {
		return "", err
	}
	o := Options{Now: goldenNow, Variables: variables}
	return p.render(Limits{}.WithDefaults(), &o, 0, func(_ *run, globals map[string]any) error { return o.variables(globals, nil, false) })
}

func TestChatsMatchJinja(t *testing.T) {
	g := readGolden(t)
	templates := map[string]*Template{}
	for _, c := range g.Chats {
		if templates[c.Template] == nil {
			text, err := os.ReadFile(filepath.Join("testdata", c.Template))
			if err != nil {
				t.Fatal(err)
			}
			if templates[c.Template], err = newTemplate(string(text), "<s>", "</s>"); err != nil {
				t.Fatalf("%s: %v", c.Template, err)
			}
		}
		var messages []Message
		for _, m := range c.Messages {
			messages = append(messages, messageOf(t, m))
		}
		o := optionsOf(t, c.Options)
		o.ToolsPrompt = TemplateTools
		got, err := templates[c.Template].Render(messages, o)
		if errors.Is(err, ErrToolsDropped) { // Jinja doesn't say so
			o.Tools = nil
			got, err = templates[c.Template].Render(messages, o)
		}
		c.check(t, c.Template+" "+string(mustJSON(t, c.Messages))+string(mustJSON(t, c.Options)), got, err)
	}
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// messageOf returns a Message with the fields of a JSON object.
func messageOf(t testing.TB, data []byte) Message {
	t.Helper()
	var j struct {
		Role      string
		Content   json.RawMessage
		Reasoning string `json:"reasoning_content"`
		CallID    string `json:"tool_call_id"`
		Name      string
		Calls     []struct {
			ID       string
			Function struct {
				Name      string
				Arguments json.RawMessage
			}
		} `json:"tool_calls"`
	}
	if err := json.Unmarshal(data, &j); err != nil {
		t.Fatal(err)
	}
	m := Message{Role: j.Role, Reasoning: j.Reasoning, ToolCallID: j.CallID, Name: j.Name}
	if j.Content[0] == '"' {
		if err := json.Unmarshal(j.Content, &m.Content); err != nil {
			t.Fatal(err)
		}
	} else { // null or parts, whatever the template expects
		m.Extra = map[string]json.RawMessage{contentKey: j.Content}
	}
	for i, c := range j.Calls {
		arguments := c.Function.Arguments
		if i%2 == 1 { // every other one as a string, like in OpenAI's API
			arguments = mustJSON(t, string(arguments))
		}
		m.ToolCalls = append(m.ToolCalls, ToolCall{c.ID, c.Function.Name, arguments})
	}
	return m
}

func optionsOf(t testing.TB, j map[string]json.RawMessage) Options {
	t.Helper()
	o := Options{Now: goldenNow, Variables: maps.Clone(j)}
	for name, to := range map[string]any{"tools": &o.Tools, "add_generation_prompt": &o.AddGenerationPrompt} {
		if raw, ok := j[name]; ok {
			if err := json.Unmarshal(raw, to); err != nil {
				t.Fatal(err)
			}
			delete(o.Variables, name)
		}
	}
	return o
}
