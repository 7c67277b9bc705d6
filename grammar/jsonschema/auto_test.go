package jsonschema

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/grammar/toolcall"
	toolparse "github.com/coppice-llm/coppice/grammar/toolcall/parse"
	"github.com/coppice-llm/coppice/kv"
)

var formTools = []offeredTool{
	{"one", []byte(`{"properties":{"a":{"type":"integer"},"b":{"enum":["x","y"]}},"required":["a","b"],"additionalProperties":false}`)},
	{"one_more", nil},
	{"two", []byte(`{"properties":{"t":{"type":"string","maxLength":9}},"required":["t"],"additionalProperties":false}`)},
}

// validCall reports whether arguments are valid for one of formTools.
func validCall(name, arguments string) bool {
	d := json.NewDecoder(strings.NewReader(arguments))
	d.DisallowUnknownFields()
	switch name {
	case "one":
		var v struct {
			A *json.Number `json:"a"`
			B string       `json:"b"`
		}
		return d.Decode(&v) == nil && v.A != nil && (v.B == "x" || v.B == "y")
	case "one_more":
		return arguments == "{}"
	case "two":
		var v struct{ T *string }
		return d.Decode(&v) == nil && v.T != nil && len([]rune(*v.T)) <= 9
	}
	return false
}

// compiledCalls compiles c for v.
func compiledCalls(t testing.TB, v *grammar.Vocabulary, c offered) *grammar.Matcher {
	t.Helper()
	rules, err := c.Rules(Config{})
	if err != nil {
		t.Fatal(err)
	}
	compiler, err := grammar.NewCompiler(v, rules, grammar.Limits{})
	if err == nil && c.Auto {
		err = compiler.Around(c.Free())
	}
	for done := false; err == nil && !done; {
		done, err = compiler.Run(1 << 20)
	}
	if err != nil {
		t.Fatal(err)
	}
	return compiler.Grammar().NewMatcher()
}

// callsIn reads the calls of text, which consists of calls of the form f, and returns false if it
// does not.
func callsIn(f *toolcall.Form, text string, prompted bool) (calls [][2]string, ok bool) {
	text, ok = strings.CutPrefix(text, f.Begin)
	for more := ok; more; {
		if !prompted {
			if text, ok = strings.CutPrefix(text, f.Open); !ok {
				return nil, false
			}
		}
		prompted = false
		var name string
		if name, text, ok = strings.Cut(text, f.Arguments); !ok {
			return nil, false
		}
		if !f.Bare && json.Unmarshal([]byte(name), &name) != nil {
			return nil, false
		}
		d := json.NewDecoder(strings.NewReader(text))
		var arguments json.RawMessage
		if d.Decode(&arguments) != nil {
			return nil, false
		}
		calls = append(calls, [2]string{name, string(arguments)})
		text = text[d.InputOffset():]
		if f.Name == "openai" && text == "" {
			return calls, true
		}
		if text, ok = strings.CutPrefix(text, f.Close); !ok {
			return nil, false
		}
		if more = text != f.End; more && f.Gap != "" {
			text, more = strings.CutPrefix(text, f.Gap)
			if !more {
				return nil, false
			}
		}
	}
	return calls, ok
}

// TestForms: outputs that must call a tool are calls of the form, at most Most, with valid
// arguments. Each form.
func TestForms(t *testing.T) {
	v, r := tokens(), rand.New(rand.NewSource(6))
	for _, f := range toolcall.Forms() {
		m := compiledCalls(t, v, offered{Form: f, Tools: formTools, Most: 3})
		counts := map[int]int{}
		for range 12 {
			text, ok := write(t, f.Name, m, v, r)
			if !ok {
				continue
			}
			calls, ok := callsIn(f, text, f.Name == "functionary_v3.2")
			counts[len(calls)]++
			if !ok || len(calls) < 1 || len(calls) > 3 {
				t.Fatalf("%s: wrote %q: %d calls, %v", f.Name, text, len(calls), ok)
			}
			for _, call := range calls {
				if !validCall(call[0], call[1]) {
					t.Errorf("%s: %q has a call of %s with %s", f.Name, text, call[0], call[1])
				}
			}
		}
		if len(counts) == 0 {
			t.Errorf("%s: no output came to an end", f.Name)
		}
	}
}

// begun are outputs up to a moment at which a call has begun.
func begun(f *toolcall.Form) (all []string) {
	if f.Mark != "" && f.Name != "functionary_v3.2" {
		all = append(all, f.Mark, "Let me see.\n\n"+f.Mark, "<think>\n I'd write "+f.Mark+"…\n</think>\n\nSo: "+f.Mark, f.Mark[:1]+f.Mark)
	}
	name := f.Open + "one"
	switch {
	case f.Name == "functionary_v3.2":
		all = append(all, "one\n", "all\nLet me see."+name+"\n", ">>>two\n")
	case f.Mark == "":
		all = append(all, f.Open+`"two"`, " \n"+f.Open+`"one"`, `{"name":"one_more"`, "<think>{</think>\n"+f.Open+`"two"`)
	case f == toolcall.Hermes:
		all = append(all, `{"name": "one"`, "```json\n{\"name\":\"one\"", "\n```json\n{\n  \"name\": \"one_more\"", "```\n{ \"name\" : \"two\"",
			`{{"name": "two"`, "Read it so:\n\n```json\n{\n  \"name\": \"two\"", "So:\n{\"name\": \"one\"", "<think>\nhm\n</think>\n\n{\"name\": \"one\"")
	}
	return all
}

// TestAuto: however a call begins, it is written to its end, with valid arguments; then the output
// is free text again, or ends. Each form.
func TestAuto(t *testing.T) {
	v, r := tokens(), rand.New(rand.NewSource(8))
	for _, f := range toolcall.Forms() {
		c := offered{Form: f, Tools: formTools, Most: 2, Auto: true}
		m := compiledCalls(t, v, c)
		for _, beginning := range begun(f) {
			for range 3 {
				m.Reset()
				for i := range len(beginning) {
					if !m.Accept(kv.Token(beginning[i])) {
						t.Fatalf("%s: %q is refused after %q", f.Name, beginning[i], beginning[:i])
					}
				}
				if m.CanEnd() {
					t.Fatalf("%s: after %q the output may end", f.Name, beginning)
				}
				text, ok := writeCall(t, m, v, r, beginning)
				if !ok {
					continue
				}
				calls, ok := autoCalls(f, beginning, text)
				if !ok || len(calls) == 0 {
					t.Fatalf("%s: after %q wrote %q", f.Name, beginning, text)
				}
				for _, call := range calls {
					if !validCall(call[0], call[1]) {
						t.Errorf("%s: %q: a call of %s with %s", f.Name, text, call[0], call[1])
					}
				}
				if f.Begin != "" || f.Name == "openai" {
					if !m.MustEnd() && f.Name != "openai" {
						t.Errorf("%s: after %q there may be more", f.Name, text)
					}
				} else if more := m.Clone(); !more.AcceptBytes([]byte("\nThere it is. <b>")) || !more.CanEnd() {
					t.Errorf("%s: after %q no text is allowed", f.Name, text)
				}
			}
		}
	}
}

// writeCall goes on as write does, from a moment at which a call has begun until it is complete.
func writeCall(t *testing.T, m *grammar.Matcher, v *grammar.Vocabulary, r *rand.Rand, text string) (string, bool) {
	t.Helper()
	p := newPen(t, m, v, r)
	p.out = []byte(text)
	for n := 0; !m.CanEnd(); n++ {
		switch {
		case n > 2000:
			return "", false
		case n > 30:
			p.token("a call", `}]"`)
		default:
			p.token("a call", "")
		}
	}
	return string(p.out), true
}

// autoCalls returns the calls of text, which begins as beginning does and ends with a call.
func autoCalls(f *toolcall.Form, beginning, text string) ([][2]string, bool) {
	at := strings.LastIndex(beginning, f.Mark)
	marked := f.Mark != "" && f.Name != "functionary_v3.2" && at >= 0
	if f == toolcall.Hermes { // as the parser reads them
		p := toolparse.NewParser(toolparse.Options{Form: f, Tools: []string{"one", "one_more", "two"}, Reasoning: true})
		var read [][2]string
		for _, e := range p.Next(text, true) {
			switch e.Kind {
			case toolparse.Call:
				read = append(read, [2]string{e.Text})
			case toolparse.Arguments:
				read[len(read)-1][1] += e.Text
			}
		}
		if !marked {
			return read, true
		}
		calls, ok := callsIn(f, text[at:], false)
		return read, ok && slices.Equal(read, calls)
	}
	if marked {
		return callsIn(f, text[at:], false)
	}
	if f.Name == "functionary_v3.2" {
		if i := strings.LastIndex(beginning, f.Open); i >= 0 {
			return callsIn(f, text[i:], false)
		}
		return callsIn(f, text, true)
	}
	if _, rest, ok := strings.Cut(text, "</think>"); ok {
		text = rest
	}
	text = strings.TrimSpace(text)
	var call struct {
		Name                  string
		Arguments, Parameters json.RawMessage
	}
	err := json.Unmarshal([]byte(text), &call)
	return [][2]string{{call.Name, string(call.Arguments) + string(call.Parameters)}}, err == nil
}

// TestAutoFree: outputs without calls are free, whatever they look like.
func TestAutoFree(t *testing.T) {
	v := tokens()
	texts := map[string][]string{
		"hermes": {"", "Hello.", `{"name": "Alice", "age": 3}`, "```json\n{\"name\": \"other\"}\n```", "<tool>", "<tool_cal", "< tool_call>", `[{"name": "one"}]`,
			`It is {"name": "one", "arguments": 5}`, "<think>I could write <tool_call> and {\"name\": \"one\", or not", "<think><tool_call></think>no", "ÿ\xff\x80",
			"```python\nprint(1)\n```", `{"name": "one_mo`, "<function=one>"},
		"functionary_v3.2": {"all\n>>> print(1)\n1", ">>>one>", "one thing"},
		"llama3_json":      {`Yes {"name": "one"`, `{"name": "onex"`, "<tool_call>"},
		"mistral":          {"[TOOL_CALL]", "[{\"name\": \"one\"}]"},
		"openai":           {"<|channel|>commentary to=fun"},
	}
	for name, texts := range texts {
		m := compiledCalls(t, v, offered{Form: toolcall.FormByName(name), Tools: formTools, Most: 2, Auto: true})
		for _, text := range texts {
			m.Reset()
			for i := range len(text) {
				if !m.AcceptBytes([]byte{text[i]}) {
					t.Fatalf("%s: %q is refused after %q", name, text[i], text[:i])
				}
			}
			if !m.CanEnd() || m.MustEnd() {
				t.Errorf("%s: %q can't end", name, text)
			}
		}
	}
	// Reasoning that the prompt has opened ends before a mark counts.
	m := compiledCalls(t, v, offered{Tools: formTools, Most: 1, Auto: true, Opened: true})
	if !m.AcceptBytes([]byte("I'd write <tool_call> here, or {}</think>\n\nNo.")) || !m.CanEnd() {
		t.Error("a mark within opened reasoning begins a call")
	}
	if !m.AcceptBytes([]byte("<tool_call>")) || m.CanEnd() || m.AcceptBytes([]byte("x")) {
		t.Error("a mark after opened reasoning begins no call")
	}
}

// TestAutoRefused: with Auto, a schema that is refused leaves the tool any JSON object; the names
// that a form can't write are refused.
func TestAutoRefused(t *testing.T) {
	v := tokens()
	for _, parameters := range []string{`{"not":{}}`, `{"type":"string"}`, `{"type":"object","properties":{"x":false},"required":["x"]}`} {
		tools := []offeredTool{{"bad", []byte(parameters)}, formTools[0]}
		if _, err := (offered{Tools: tools, Most: 1}).Rules(Config{}); err == nil {
			t.Errorf("%s is not refused", parameters)
		}
		m := compiledCalls(t, v, offered{Tools: tools, Most: 1, Auto: true})
		if !m.AcceptBytes([]byte(callText("bad", `{"q": [1, {}]}`))) || !m.MustEnd() {
			t.Errorf("%s: a call with another object is refused", parameters)
		}
		if m.Reset(); m.AcceptBytes([]byte(callText("one", `{"q": 1}`))) {
			t.Errorf("%s: another tool's arguments may be anything", parameters)
		}
	}
	var many []offeredTool
	for i := range 40 {
		many = append(many, offeredTool{fmt.Sprint("t", i), []byte(`{"properties":{"a":{"enum":[1` + strings.Repeat(",1", 200) + `]}}}`)})
	}
	calls := offered{Tools: many, Most: 1, Auto: true}
	full, err := calls.Rules(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := calls.Rules(Config{MaxSize: 100 * len(many)}); err != nil {
		t.Errorf("schemas that are too large together: %v", err)
	}
	calls.AnyArguments = true
	if plain, err := calls.Rules(Config{}); err != nil || len(plain) == len(full) {
		t.Errorf("any arguments: %v", err)
	}
	for _, c := range []offered{
		{Form: toolcall.FormByName("functionary_v3.1"), Tools: []offeredTool{{"a>b", nil}}, Most: 1},
		{Form: toolcall.FormByName("functionary_v3.2"), Tools: []offeredTool{{"all", nil}}, Most: 1, Auto: true},
		{Form: toolcall.FormByName("mistral_args"), Tools: []offeredTool{{"a[ARGS]", nil}}, Most: 1},
	} {
		if _, err := c.Rules(Config{}); !errors.Is(err, ErrSchema) || !strings.Contains(err.Error(), "rename the tool") {
			t.Errorf("%s: tool %q: %v", c.Form.Name, c.Tools[0].Name, err)
		}
	}
}
