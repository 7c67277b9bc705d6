package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOpen(t *testing.T) {
	tool := []json.RawMessage{json.RawMessage(`{}`)}
	for _, tc := range []struct {
		name  string
		files map[string]string
		o     Options
		want  string // "" if Open fails
		err   error
	}{
		{"nothing", nil, Options{}, "", ErrInvalid},
		{"no template", map[string]string{"tokenizer_config.json": `{"bos_token":"<s>","chat_template":null}`}, Options{}, "", ErrInvalid},
		{"a string", map[string]string{"tokenizer_config.json": `{"bos_token":"<s>","chat_template":"{{ bos_token }}!"}`}, Options{}, "<s>!", nil},
		{"tokens in objects", map[string]string{"tokenizer_config.json": `{"bos_token":{"content":"<b>"},"eos_token":null,"pad_token":"p","chat_template":"{{ bos_token }}{{ eos_token is defined }}{{ pad_token }}"}`}, Options{}, "<b>Falsep", nil},
		{"a list", map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"default","template":"d"},{"name":"tool_use","template":"t"}]}`}, Options{}, "d", nil},
		{"a list, with tools", map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"default","template":"d"},{"name":"tool_use","template":"t"}]}`}, Options{Tools: tool}, "t", nil},
		{"a list, by name", map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"default","template":"d"},{"name":"rag","template":"r"}]}`}, Options{Template: "rag"}, "r", nil},
		{"a file", map[string]string{"chat_template.jinja": "f\n", "tokenizer_config.json": `{"chat_template":"c"}`}, Options{}, "f", nil},
		{"a file without a config", map[string]string{"chat_template.jinja": "f"}, Options{Tools: tool}, "f", nil},
		{"more files", map[string]string{"chat_template.jinja": "f", "additional_chat_templates/tool_use.jinja": "t"}, Options{Tools: tool}, "t", nil},
		{"broken config", map[string]string{"tokenizer_config.json": `{`}, Options{}, "", ErrInvalid},
		{"a number", map[string]string{"tokenizer_config.json": `{"chat_template":5}`}, Options{}, "", ErrInvalid},
		{"a number for a token", map[string]string{"tokenizer_config.json": `{"bos_token":5,"chat_template":""}`}, Options{}, "", ErrInvalid},
		{"broken template", map[string]string{"chat_template.jinja": "{% if %}"}, Options{}, "", ErrInvalid},
		{"unsupported template", map[string]string{"chat_template.jinja": "{% include 'x' %}"}, Options{}, "", ErrUnsupported},
	} {
		dir := filepath.Join(t.TempDir(), "a[b") // a pattern would be malformed
		for name, text := range tc.files {
			write(t, filepath.Join(dir, name), text)
		}
		x, err := Open(dir)
		if tc.err != nil {
			if !errors.Is(err, tc.err) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%s: error %v, want %v with the directory", tc.name, err, tc.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if got, err := x.Render(nil, tc.o); err != nil || got != tc.want {
			t.Errorf("%s: %q, %v; want %q", tc.name, got, err, tc.want)
		}
	}
}

func TestUnknownTemplateName(t *testing.T) {
	x, err := NewNamed(map[string]string{"a": "1", "b": "2"}, nil, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "c"} {
		if _, err := x.Render(nil, Options{Template: name}); !errors.Is(err, ErrRender) || !strings.Contains(err.Error(), `["a" "b"]`) {
			t.Errorf("%q: %v, want the names that there are", name, err)
		}
	}
	if _, err := NewNamed(nil, nil, Limits{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("no templates: %v", err)
	}
}

// An error about an unsupported feature names it, with its line.
func TestRefusalsNameTheFeature(t *testing.T) {
	for text, want := range map[string]string{
		"a\nb {% block x %}{% endblock %}":              `line 2: the tag "block"`,
		"{% extends 'x' %}":                             `the tag "extends"`,
		"{% import 'x' as y %}":                         `the tag "import"`,
		"{% call f() %}{% endcall %}":                   `the tag "call"`,
		"{% for x in y recursive %}{% endfor %}":        "recursive loops",
		"{{ x | random }}":                              `the filter "random"`,
		"{{ x is escaped }}":                            `the test "escaped"`,
		"{{ f(*x) }}":                                   "calls with *",
		"{% macro f(**k) %}{% endmacro %}":              "macros with **",
		"{{ 99999999999999999999 }}":                    "more than 64 bits",
		"{{ 'x'.zfill(3) }}":                            "str.zfill",
		"{{ 9223372036854775807 + 1 }}":                 "needs more than 64 bits",
		"{{ -9223372036854775807 - 2 }}":                "needs more than 64 bits",
		"{{ 4611686018427387904 * 2 }}":                 "needs more than 64 bits",
		"{{ 3 ** 99 }}":                                 "needs more than 64 bits",
		"{{ (-9223372036854775807 - 1) // -1 }}":        "needs more than 64 bits",
		"{% if 1 %}":                                    "the template ends where",
		"{{ 1":                                          "a tag without its end",
		"{# x":                                          "a comment without an end",
		"{% raw %} {% endif %}":                         "raw without endraw",
		"{% nonsense %}":                                `unknown tag "nonsense"`,
		"{% break %}":                                   "outside of a loop",
		"{% for x in y %}{% macro f() %}{% break %}":    "outside of a loop",
		"{% endif %}":                                   `unknown tag "endif"`,
		"{{ 'x }}":                                      "a string without an end",
		"{{ (1] }}":                                     `unexpected "]"`,
		"{{ a ? b }}":                                   "unexpected character",
		"{{ strftime_now('%Y') }}":                      "Options.Now",
		"{{ nope.x }}":                                  `"nope" is undefined`,
		"{% set true = 1 %}":                            "can't be assigned",
		"{% set a, b = 1, 2, 3 %}":                      "3 values for 2 names",
		"{{ {[]: 1} }}":                                 "can't be a key",
		"{{ range(1, 2, 0) }}":                          "step 0",
		"{{ [1][::0] }}":                                "step 0",
		"{{ strftime_now }}{{ 'x' | join(1) }}":         "wants text",
		"{{ 5() }}":                                     "can't be called",
		"{{ 'a' | tojson(1, 2, 3, 4, 5) }}":             "takes 4 arguments, and got 5",
		"{{ 'a' | upper(x=1) }}":                        `takes no argument "x"`,
		"{{ 'a'.split(',', sep=',') }}":                 "got \"sep\" twice",
		"{% macro f(a) %}{% endmacro %}{{ f(1, a=2) }}": "got \"a\" twice",
		"{{ raise_exception('bad \" words') }}":         `bad " words`,
		"{% macro f(a=1, b) %}{% endmacro %}":           "a parameter without a default",
		"{{ f(a=1, 2) }}":                               "an argument without a name",
		"{{ 1 is odd is even }}":                        "two tests in a row",
		"{{ 'a' if b is defined if c }}":                "unexpected \"if\"", // as in Jinja, where it would be the test's argument
		"{{ a[] }}":                                     "an empty subscript",
		"{{ '\\uD800' }}":                               "no character",
		"{{ '\\x4' }}":                                  "cut off",
		"{{ 1.5.x }}{{ 'abc' | round }}":                "round of",
		"{{ none < 1 }}":                                "between a value of type None and a value of type int",
		"{% set x %}{% for i in range(3) %}{{ [] < {} }}{% endfor %}{% endset %}": "between",
	} {
		x, err := newTemplate(text, "", "")
		if err == nil {
			_, err = x.Render(nil, Options{})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %s", text, err, want)
		}
	}
}

func TestArgumentsOfCalls(t *testing.T) {
	x, err := newTemplate(`{{ messages[0].tool_calls[0] | tojson }}`, "", "")
	if err != nil {
		t.Fatal(err)
	}
	for arguments, want := range map[string]string{
		``:                                `{}`,
		`{"b": 1, "a": [1.50, 1e400]}`:    `{"b": 1, "a": [1.5, Infinity]}`,
		`"{\"b\": 12345678901234567890}"`: `{"b": 12345678901234567890}`,
		`"no object"`:                     `"no object"`,
		`"[1]"`:                           `"[1]"`,
	} {
		m := Message{Role: "assistant", ToolCalls: []ToolCall{{ID: "i", Name: "f"}}}
		if arguments != "" {
			m.ToolCalls[0].Arguments = json.RawMessage(arguments)
		}
		got, err := x.Render([]Message{m}, Options{ToolsPrompt: TemplateTools})
		if want := `{"id": "i", "type": "function", "function": {"name": "f", "arguments": ` + want + `}}`; err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", arguments, got, err, want)
		}
	}
	for _, bad := range []string{`{`, `{} {}`, `nope`} {
		m := Message{ToolCalls: []ToolCall{{Arguments: json.RawMessage(bad)}}}
		if _, err := x.Render([]Message{m}, Options{}); !errors.Is(err, ErrRender) || !strings.Contains(err.Error(), "message 0: tool call 0") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := x.Render(nil, Options{Tools: []json.RawMessage{json.RawMessage(`{`)}}); !errors.Is(err, ErrRender) || !strings.Contains(err.Error(), "tool 0") {
		t.Errorf("a broken tool: %v", err)
	}
}

func TestExtraKeys(t *testing.T) {
	x, err := newTemplate(`{{ messages | tojson }}{% for m in messages %}{% for part in m.content %}{% endfor %}{% endfor %}`, "", "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := x.Render([]Message{{
		Role: "user", Extra: map[string]json.RawMessage{"z": json.RawMessage(`1`), "role": json.RawMessage(`"r"`)},
		Parts: []Part{{Type: "image", Extra: map[string]json.RawMessage{"url": json.RawMessage(`"u"`)}}, {Type: "text"}},
	}}, Options{})
	if want := `[{"role": "r", "content": [{"type": "image", "url": "u"}, {"type": "text", "text": ""}], "z": 1}]`; err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

// A rendering changes nothing that the next one sees.
func TestRenderingsAreIndependent(t *testing.T) {
	x, err := newTemplate(`{% set bos_token = bos_token ~ 'x' %}{% set range = 1 %}{% for m in messages %}{% set m = 1 %}{% endfor %}{{ bos_token }}{{ messages | length }}`, "<s>", "")
	if err != nil {
		t.Fatal(err)
	}
	messages := []Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: "b"}}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if got, err := x.Render(messages, Options{}); err != nil || got != "<s>x2" {
					t.Errorf("%q, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestStrftimeAtOddTimes(t *testing.T) {
	for _, tc := range []struct {
		at           time.Time
		format, want string
	}{
		{time.Date(2000, 1, 2, 0, 0, 0, 12345000, time.UTC), "%f %u %w %-H %e %j %%%", "012345 7 0 0  2 002 %%"},
		{time.Date(2024, 12, 31, 13, 9, 0, 0, time.FixedZone("X", -5400)), "%I:%M %p %z %Z %a %h", "01:09 PM -0130 X Tue Dec"},
	} {
		x, err := newTemplate("{{ strftime_now('"+tc.format+"') }}", "", "")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := x.Render(nil, Options{Now: tc.at}); err != nil || got != tc.want {
			t.Errorf("%s: %q, %v; want %q", tc.format, got, err, tc.want)
		}
	}
	x, _ := newTemplate("{{ strftime_now('%Q') }}", "", "")
	if _, err := x.Render(nil, Options{Now: goldenNow}); !errors.Is(err, ErrRender) {
		t.Errorf("%%Q: %v", err)
	}
}

// A real conversation must stay far below the default of Limits.Steps.
func TestStepsOfALongConversation(t *testing.T) {
	text, err := os.ReadFile("testdata/qwen.jinja")
	if err != nil {
		t.Fatal(err)
	}
	var messages []Message
	for range 100 {
		messages = append(messages, Message{Role: "user", Content: "What is light?"}, Message{Role: "assistant", Content: "Rays."})
	}
	x, err := NewNamed(map[string]string{"default": string(text)}, nil, Limits{Steps: 50_000})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Render(messages, Options{}); err != nil {
		t.Error(err)
	}
}

func BenchmarkRender(b *testing.B) {
	for _, turns := range []int{1, 10, 100} {
		text, err := os.ReadFile("testdata/qwen.jinja")
		if err != nil {
			b.Fatal(err)
		}
		x, err := newTemplate(string(text), "<s>", "</s>")
		if err != nil {
			b.Fatal(err)
		}
		messages := []Message{{Role: "system", Content: "Be brief."}}
		for range turns {
			messages = append(messages, Message{Role: "user", Content: strings.Repeat("What is light? ", 10)}, Message{Role: "assistant", Content: strings.Repeat("Rays. ", 30)})
		}
		b.Run(fmt.Sprintf("turns=%d", turns), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := x.Render(messages, Options{AddGenerationPrompt: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// newTemplate parses one template. bos and eos are special tokens; "" leaves them undefined.
func newTemplate(text, bos, eos string) (*Template, error) {
	special := map[string]string{}
	for name, token := range map[string]string{"bos_token": bos, "eos_token": eos} {
		if token != "" {
			special[name] = token
		}
	}
	return NewNamed(map[string]string{"default": text}, special, Limits{})
}
