package anthropic

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

func decodeOK(t testing.TB, body string) *Request {
	t.Helper()
	r, err := Decode([]byte(body), Options{})
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

// shown returns messages in short: role, reasoning, content, calls and the call that is answered.
func shown(all []chat.Message) string {
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintf(&b, "%s", m.Role)
		if m.ToolCallID != "" {
			fmt.Fprintf(&b, "(%s)", m.ToolCallID)
		}
		if m.Reasoning != "" {
			fmt.Fprintf(&b, " {%s}", m.Reasoning)
		}
		fmt.Fprintf(&b, " %q", m.Content)
		for _, p := range m.Parts {
			fmt.Fprintf(&b, " +%q", p.Text)
		}
		for _, c := range m.ToolCalls {
			fmt.Fprintf(&b, " %s:%s%s", c.ID, c.Name, c.Arguments)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestMessages: each form of a conversation becomes the messages that a chat of OpenAI's API would have.
func TestMessages(t *testing.T) {
	const call = `{"type":"tool_use","id":"toolu_1","name":"f","input":{"a": 1},"caller":{"type":"direct"}}`
	for _, tc := range []struct{ fields, want string }{
		{`"messages":[{"role":"user","content":"x"}]`, "user \"x\"\n"},
		{`"system":"S","messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]}]`, "system \"S\"\nuser \"x\\ny\" +\"x\" +\"y\"\n"},
		{`"messages":[{"role":"user","content":"x"}],"system":[{"type":"text","text":"S","cache_control":{"type":"ephemeral"}},{"type":"text","text":"T"}]`,
			"system \"S\\nT\" +\"S\" +\"T\"\nuser \"x\"\n"},
		{`"system":"","messages":[{"role":"user","content":"x"}]`, "user \"x\"\n"},
		{`"messages":[{"role":"user","content":"x"},{"role":"user","content":"y"}]`, "user \"x\\ny\" +\"x\" +\"y\"\n"},
		{`"messages":[{"role":"user","content":"x"},{"role":"system","content":"S"},{"role":"user","content":"y"}]`, "user \"x\"\nsystem \"S\"\nuser \"y\"\n"},
		{`"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"thinking","thinking":"T","signature":"s"},{"type":"redacted_thinking","data":"d"},{"type":"text","text":"y"},` + call +
			`]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"r"},{"type":"text","text":"z"}]}]`,
			"user \"x\"\nassistant {T} \"y\" +\"y\" toolu_1:f{\"a\": 1}\ntool(toolu_1) \"r\"\nuser \"z\" +\"z\"\n"},
		{`"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[` + call + `,` + strings.Replace(call, "_1", "_2", 1) +
			`]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"r"},{"type":"text","text":"q"}],"is_error":true},{"type":"tool_result","tool_use_id":"toolu_2"}]}]`,
			"user \"x\"\nassistant \"\" toolu_1:f{\"a\": 1} toolu_2:f{\"a\": 1}\ntool(toolu_1) \"Error: r\\nq\" +\"Error: r\" +\"q\"\ntool(toolu_2) \"\"\n"},
		{`"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"text","text":""}],"id":"msg_1","usage":{},"stop_reason":null}]`, "user \"x\"\n"},
	} {
		r := decodeOK(t, `{"max_tokens":5,`+tc.fields+`}`)
		if got := shown(r.Messages); got != tc.want {
			t.Errorf("%s:\n%swant\n%s", tc.fields, got, tc.want)
		}
		p, err := Peek([]byte(`{`+tc.fields+`}`), Options{})
		if err != nil || p.Doubt != nil || !reflect.DeepEqual(p.Messages, r.Messages) || p.ContinueFinal != r.ContinueFinal {
			t.Errorf("%s: peeked %v %v\n%s", tc.fields, err, p.Doubt, shown(p.Messages))
		}
	}
}

// TestParams: the parameters, the template's variables, the tools and the choice among them.
func TestParams(t *testing.T) {
	const x = `"messages":[{"role":"user","content":"x"}]`
	r := decodeOK(t, `{"model":"m","max_tokens":7,"stream":true,"temperature":0.5,"top_p":0.25,"top_k":3,"stop_sequences":["a","b"],"metadata":{"user_id":"u"},
		"thinking":{"type":"enabled","budget_tokens":2000},"service_tier":"auto","coppice":{"cache_salt":"s","priority":-2},"context_management":{"edits":[]},"output_config":{"effort":"max"},`+x+`}`)
	if s := r.Sampling; r.Model != "m" || r.MaxTokens != 7 || !r.Stream || s.Temperature != 0.5 || s.TopP != 0.25 || s.TopK != 3 || r.User != "u" || r.CacheSalt != "s" || r.Priority != -2 || len(r.StopStrings) != 2 {
		t.Errorf("parameters %+v", r.Params)
	}
	if v := r.Options.Variables; string(v["enable_thinking"]) != "true" || string(v["reasoning_effort"]) != `"high"` {
		t.Errorf("variables %s", v)
	}
	if got := strings.Join(r.Ignored, ", "); got != "thinking.budget_tokens, context_management" {
		t.Errorf("ignored %s", got)
	}
	if r = decodeOK(t, `{"max_tokens":7,"thinking":{"type":"disabled"},`+x+`}`); string(r.Options.Variables["enable_thinking"]) != "false" {
		t.Errorf("variables %s", r.Options.Variables)
	}
	if r = decodeOK(t, `{"max_tokens":0,`+x+`}`); !r.NoOutput || r.MaxTokens != 1 {
		t.Errorf("max_tokens 0: %+v", r.Params)
	}
	const tools = `"tools":[{"name":"f","description":"D","input_schema":{"type":"object","properties":{"a":{"type":"integer"}}},"cache_control":{"type":"ephemeral","ttl":"1h"},"strict":true},{"type":"bash_20250124","name":"bash"}]`
	for _, tc := range []struct {
		choice, forced string
		calls          conversation.Calls
	}{
		{``, `"auto":true`, conversation.AnyCalls}, {`,"tool_choice":{"type":"auto"}`, `"auto":true`, conversation.AnyCalls},
		{`,"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`, `"most":1`, conversation.OneCall}, {`,"tool_choice":{"type":"any"}`, `"most":8`, conversation.ForcedCalls},
		{`,"tool_choice":{"type":"tool","name":"f"}`, `"name":"f"`, conversation.ForcedCalls}, {`,"tool_choice":{"type":"none"}`, ``, conversation.NoCalls},
		{`,"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}`, `"answer":{"type":"object"}`, conversation.AnyCalls},
	} {
		r := decodeOK(t, `{"max_tokens":7,`+tools+tc.choice+","+x+`}`)
		if r.Calls != tc.calls || !strings.Contains(r.Format.Calls, tc.forced) {
			t.Errorf("%s: %v %s", tc.choice, r.Calls, r.Format.Calls)
		}
		if tc.calls == conversation.NoCalls {
			continue
		}
		want := `{"type":"function","function":{"name":"f","description":"D","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}`
		if len(r.Options.Tools) != 2 || string(r.Options.Tools[0]) != want || !json.Valid(r.Options.Tools[1]) || r.ToolNames[1] != "bash" {
			t.Errorf("tools %s", r.Options.Tools)
		}
	}
	for _, field := range []string{`"output_format":`, `"output_config":{"format":`} {
		end := strings.Repeat("}", strings.Count(field, "{"))
		if r := decodeOK(t, `{"max_tokens":7,`+field+`{"type":"json_schema","schema":{"type": "object"}}`+end+","+x+`}`); r.Format.JSONSchema != `{"type":"object"}` {
			t.Errorf("%s: %+v", field, r.Format)
		}
	}
}

// TestFaults: each fault is named by its path.
func TestFaults(t *testing.T) {
	const x = `"messages":[{"role":"user","content":"x"}]`
	content := func(blocks string) string {
		return `"max_tokens":5,"messages":[{"role":"user","content":[` + blocks + `]}]`
	}
	for _, tc := range []struct{ fields, param, says string }{
		{x, "max_tokens", "missing"}, {`"max_tokens":5`, "messages", "want at least one message"}, {`"max_tokens":5,"messages":[]`, "messages", "want at least one message"},
		{`"max_tokens":-1,` + x, "max_tokens", "want an integer from 0"}, {`"max_tokens":5,"colour":1,` + x, "colour", "Unrecognized"}, {`"max_tokens":5,"temperature":1.5,` + x, "temperature", "from 0 to 1"},
		{`"max_tokens":5,"container":"c",` + x, "container", "runs no code"}, {`"max_tokens":5,"mcp_servers":[{}],` + x, "mcp_servers", "calls no tools"},
		{`"max_tokens":5,"messages":[{"role":"tool","content":"x"}]`, "messages[0].role", "want one of"}, {`"max_tokens":5,"messages":[{"role":"user"}]`, "messages[0].content", "missing"},
		{`"max_tokens":5,"messages":[{"content":"x"}]`, "messages[0].role", "missing"}, {`"max_tokens":5,"messages":[7]`, "messages[0]", "want a message"},
		{content(`{"type":"image","source":{}}`), "messages[0].content[0]", "reads no images"}, {content(`{"type":"document","source":{}}`), "messages[0].content[0]", "give its text"},
		{content(`{"type":"web_search_tool_result","content":[]}`), "messages[0].content[0]", "runs no tools"}, {content(`{"text":"x"}`), "messages[0].content[0].type", "missing"},
		{content(`{"type":"text"}`), "messages[0].content[0].text", "missing"}, {content(`{"type":"text","text":"x","colour":1}`), "messages[0].content[0].colour", "Unrecognized"},
		{content(`{"type":"tool_use","id":"1","name":"f","input":{}}`), "messages[0].content[0]", "role user can't have"}, {content(`{"type":"tool_result"}`), "messages[0].content[0].tool_use_id", "missing"},
		{content(`{"type":"tool_result","tool_use_id":"1","content":[{"type":"image"}]}`), "messages[0].content[0].content[0]", "reads no images"},
		{content(`{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"2h"}}`), "messages[0].content[0].cache_control.ttl", "want one of"},
		{content(strings.Repeat(`{"type":"text","text":"x","cache_control":{"type":"ephemeral"}},`, 4) + `{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}`), "messages[0].content[4]", "5 blocks with cache_control, want at most 4"},
		{`"max_tokens":5,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]}]`, "messages", "no tool_result blocks follow"},
		{`"max_tokens":5,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":"{}"}]}]`, "messages[0].content[0].input", "want an object"},
		{`"max_tokens":5,"tools":[{"type":"web_search_20250305","name":"web_search"}],` + x, "tools[0]", `the tool "web_search_20250305"`},
		{`"max_tokens":5,"tools":[{"name":"f"}],` + x, "tools[0].input_schema", "missing"}, {`"max_tokens":5,"tools":[{"input_schema":{}}],` + x, "tools[0].name", "missing"},
		{`"max_tokens":5,"tool_choice":{"type":"any"},` + x, "tool_choice", "there are no tools"}, {`"max_tokens":5,"tool_choice":{"type":"tool"},` + x, "tool_choice.name", "missing"},
		{`"max_tokens":5,"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool","name":"g"},` + x, "tool_choice", "no tool has that name"},
		{`"max_tokens":5,"stop_sequences":[""],` + x, "stop_sequences[0]", "empty"}, {`"max_tokens":5,"thinking":{"type":"hard"},` + x, "thinking.type", "want one of"},
		{`"max_tokens":5,"output_format":{"type":"json_schema"},` + x, "output_format.schema", "missing"}, {`"max_tokens":5,"system":[{"type":"image"}],` + x, "system[0]", "reads no images"},
	} {
		_, err := Decode([]byte(`{`+tc.fields+`}`), Options{})
		var e *conversation.Error
		if !errors.As(err, &e) || e.Status != 400 || e.Param != tc.param || !strings.Contains(e.Message, tc.says) {
			t.Errorf("%.200s: %v at %s, want %s at %s", tc.fields, err, paramOf(err), tc.says, tc.param)
		}
		if _, err := Peek([]byte(`{`+tc.fields+`}`), Options{}); err != nil {
			t.Errorf("%.200s: a proxy refuses it: %v", tc.fields, err)
		}
	}
	for _, body := range []string{"", "[]", `{"messages":`, strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)} {
		if _, err := Decode([]byte(body), Options{}); err == nil {
			t.Errorf("%.50s is accepted", body)
		}
		if _, err := Peek([]byte(body), Options{}); err == nil {
			t.Errorf("a proxy accepts %.50s", body)
		}
	}
	if _, err := Decode([]byte(`{"max_tokens":5,"colour":1,`+x+`}`), Options{IgnoreUnknown: true}); err != nil {
		t.Error(err)
	}
}

func paramOf(err error) string {
	if e := (*conversation.Error)(nil); errors.As(err, &e) {
		return e.Param
	}
	return ""
}

// TestPrefill: an assistant's message at the end is the beginning of the answer.
func TestPrefill(t *testing.T) {
	r := decodeOK(t, `{"max_tokens":5,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"The answer is ("}]}`)
	if !r.ContinueFinal || r.Options.AddGenerationPrompt || len(r.Messages) != 2 {
		t.Errorf("%+v", r.Turn)
	}
	if cut, err := r.CutFinal("<user>x<assistant>The answer is (<end>"); err != nil || cut != "<user>x<assistant>The answer is (" {
		t.Errorf("%q %v", cut, err)
	}
}

// TestNonce: the block that differs in each request is left out, and nothing else.
func TestNonce(t *testing.T) {
	const nonce = "x-anthropic-billing-header: cc_version=2.1.37.3a3; cc_entrypoint=cli; cch=a1b2c;"
	ask := func(o Options, system string) *Request {
		r, err := Decode([]byte(`{"max_tokens":5,"system":`+system+`,"messages":[{"role":"user","content":[{"type":"text","text":"`+nonce+`"}]}]}`), o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	blocks := `[{"type":"text","text":"` + nonce + `"},{"type":"text","text":"S"}]`
	want := "user \"" + nonce + "\" +\"" + nonce + "\"\n" // of another role it is text
	if r := ask(Options{}, blocks); r.Stripped != 1 || shown(r.Messages) != "system \"S\" +\"S\"\n"+want {
		t.Errorf("%d stripped:\n%s", r.Stripped, shown(r.Messages))
	}
	if r := ask(Options{}, `[{"type":"text","text":"`+nonce+`"}]`); r.Stripped != 1 || shown(r.Messages) != want {
		t.Errorf("%d stripped:\n%s", r.Stripped, shown(r.Messages))
	}
	if r := ask(Options{}, `[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1.197.707; cc_entrypoint=sdk-cli;"}]`); r.Stripped != 1 {
		t.Error("a newer form, without cch, is in the prompt")
	}
	if r := ask(Options{KeepNonces: true}, blocks); r.Stripped != 0 || len(r.Messages[0].Parts) != 2 {
		t.Errorf("%d stripped:\n%s", r.Stripped, shown(r.Messages))
	}
	for _, text := range []string{
		"x-anthropic-billing-header: cc_version=2.1.37", "x-anthropic-billing-header: cc_version=2; cch=a; Obey me.", " " + nonce, "Say " + nonce, nonce + "\\nS",
		"x-anthropic-billing-header: cch=a;", "X-Anthropic-Billing-Header: cc_version=2; cch=a;", strings.TrimSuffix(nonce, ";"),
	} {
		if r := ask(Options{}, `[{"type":"text","text":"`+text+`"}]`); r.Stripped != 0 {
			t.Errorf("%q is left out", text)
		}
	}
}

// TestBreakpoints: cache_control marks a prefix of the rendered prompt.
func TestBreakpoints(t *testing.T) {
	const mark = `,"cache_control":{"type":"ephemeral"}`
	body := `{"max_tokens":5,"tools":[{"name":"f","input_schema":{},"cache_control":{"type":"ephemeral","ttl":"1h"}}],
		"system":[{"type":"text","text":"One"` + mark + `},{"type":"text","text":"Two"}],
		"messages":[{"role":"user","content":"x"},{"role":"assistant","content":" y "},{"role":"user","content":[{"type":"text","text":"z"` + mark + `},{"type":"text","text":"after"}]}]}`
	r := decodeOK(t, body)
	want := []Breakpoint{{-1, 0, time.Hour}, {0, 3, 5 * time.Minute}, {3, 1, 5 * time.Minute}}
	if !reflect.DeepEqual(r.Breakpoints, want) {
		t.Fatalf("%+v, want %+v", r.Breakpoints, want)
	}
	const rendered = "<system>One\nTwo<tools>f<user>x<assistant>y<user>z\nafter<assistant>"
	var covered []string
	for _, n := range r.Ends(rendered) {
		covered = append(covered, rendered[:n])
	}
	if got := strings.Join(covered, " | "); got != "<system>One\nTwo<tools>f<user> | <system>One\nTwo<tools>f<user> | <system>One\nTwo<tools>f<user>x<assistant>y<user>z" {
		t.Error(got)
	}
	r = decodeOK(t, `{"max_tokens":5,"cache_control":{"type":"ephemeral"},"messages":[{"role":"user","content":"x"},{"role":"user","content":"yz"}]}`)
	if len(r.Breakpoints) != 1 || r.Ends("<user>x\nyz<assistant>")[0] != len("<user>x\nyz") {
		t.Errorf("%+v", r.Breakpoints)
	}
	if got := r.Ends("another text"); got[0] != 0 {
		t.Errorf("a template that changes the text: %v", got)
	}
}
