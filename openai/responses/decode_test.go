package responses

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// store has the responses that tests have stored, by id.
type store map[string]*Stored

func (s store) find(id string) (*Stored, error) {
	if r := s[id]; r != nil {
		return r, nil
	}
	return nil, NotFound(id)
}

// first and second are ids of stored responses.
const (
	first  = "resp_0000000000000001000000000000000a"
	second = "resp_0000000000000002000000000000000a"
)

// stored has a response with a call of a tool, and one that continues it with the tool's result.
func stored() store {
	return store{
		first: {
			Input: []byte(`[{"type":"message","id":"msg_0000000000000001000000000000000ai0","role":"user","content":[{"type":"input_text","text":"Is it cold?"}]}]`),
			Response: []byte(`{"id":"` + first + `","output":[{"type":"reasoning","id":"rs_0000000000000001000000000000000a00","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]},` +
				`{"type":"function_call","id":"fc_0000000000000001000000000000000a01","call_id":"call_1","name":"f","arguments":"{}"}]}`),
		},
		second: {
			Previous: first,
			Input:    []byte(`[{"type":"function_call_output","id":"fco_1","call_id":"call_1","output":"13 degrees"}]`),
			Response: []byte(`{"id":"` + second + `","output":[{"type":"message","id":"msg_0000000000000002000000000000000a00","role":"assistant","content":[{"type":"output_text","annotations":[],"text":"Not very."}]}]}`),
		},
	}
}

// TestDecode decodes the bodies in testdata/decode, a line each.
func TestDecode(t *testing.T) {
	datadriven.RunTest(t, "testdata/decode", func(_ *testing.T, d *datadriven.TestData) string {
		var out strings.Builder
		for line := range strings.Lines(d.Input) {
			ask, err := Decode([]byte(line), Options{Find: stored().find})
			if err != nil {
				e := err.(*conversation.Error)
				fmt.Fprintf(&out, "%d %s %s: %s\n", e.Status, e.Code, e.Param, e.Message)
				continue
			}
			fmt.Fprintln(&out, described(ask))
		}
		return out.String()
	})
}

// TestLongCacheKey: a name of a session that the node would refuse is refused by the field's name.
func TestLongCacheKey(t *testing.T) {
	for n, ok := range map[int]bool{maxSession: true, maxSession + 1: false} {
		_, err := Decode([]byte(`{"input":"x","prompt_cache_key":"`+strings.Repeat("k", n)+`"}`), Options{})
		if e, _ := err.(*conversation.Error); (err == nil) != ok || e != nil && e.Param != "prompt_cache_key" {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// described returns what a request asks for, without what is as by default.
func described(a *Ask) string {
	var b strings.Builder
	b.WriteString(said(a.Messages))
	for _, tool := range a.Options.Tools {
		fmt.Fprintf(&b, " tool:%s", tool)
	}
	show := func(name, v string) {
		if v != "" && v != "0" && v != "false" {
			fmt.Fprintf(&b, " %s:%s", name, v)
		}
	}
	show("format", a.Format.JSONSchema)
	show("json", fmt.Sprint(a.Format.JSON))
	show("calls", a.Format.Calls)
	show("session", a.Session)
	show("previous", a.Previous)
	show("most", fmt.Sprint(a.MaxTokens))
	show("stream", fmt.Sprint(a.Stream))
	show("unstored", fmt.Sprint(!a.Store))
	show("user", a.User)
	show("salt", a.CacheSalt)
	show("topk", fmt.Sprint(a.Sampling.TopK))
	show("logprobs", fmt.Sprint(a.Logprobs))
	show("top", fmt.Sprint(a.TopLogprobs))
	show("variables", string(a.Options.Variables["reasoning_effort"]))
	show("ignored", strings.Join(a.Ignored, ","))
	return b.String()
}

func said(all []chat.Message) string {
	var b strings.Builder
	for i, m := range all {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s(%s", m.Role, m.Content)
		if m.Reasoning != "" {
			fmt.Fprintf(&b, " thinks %s", m.Reasoning)
		}
		for _, c := range m.ToolCalls {
			fmt.Fprintf(&b, " calls %s=%s%s", c.ID, c.Name, c.Arguments)
		}
		if m.ToolCallID != "" {
			fmt.Fprintf(&b, " for %s", m.ToolCallID)
		}
		if m.Parts != nil {
			fmt.Fprintf(&b, " in %d parts", len(m.Parts))
		}
		b.WriteByte(')')
	}
	return strings.ReplaceAll(b.String(), "\n", `\n`)
}

// TestSameTurn: a conversation is the same for the template in both of OpenAI's APIs.
func TestSameTurn(t *testing.T) {
	const parameters = `{"type":"object","properties":{"city":{"type":"string"}}}`
	ask, err := Decode([]byte(`{"instructions":"Be brief.","input":[{"role":"user","content":[{"type":"input_text","text":"Hi"}]},
		{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Let me see.","annotations":[],"logprobs":[]}]},
		{"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":"{\"city\":\"Rome\"}","status":"completed"},
		{"type":"function_call","call_id":"call_2","name":"f","arguments":"{}"},
		{"type":"function_call_output","call_id":"call_1","output":"fog"},{"type":"function_call_output","call_id":"call_2","output":[{"type":"input_text","text":"rain"}]},
		{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}],
		"tools":[{"type":"function","strict":true,"name":"f","parameters":`+parameters+`,"description":"d"}]}`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := openai.DecodeChat([]byte(`{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"},
		{"role":"assistant","content":"Let me see.","tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"city\":\"Rome\"}"}},
		{"id":"call_2","type":"function","function":{"name":"f","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"call_1","content":"fog"},{"role":"tool","tool_call_id":"call_2","content":"rain"},
		{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}],
		"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":`+parameters+`}}]}`), openai.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][2]any{{ask.Messages, other.Messages}, {ask.Options, other.Options}} {
		if a, b := fmt.Sprintf("%+v", pair[0]), fmt.Sprintf("%+v", pair[1]); a != b {
			t.Errorf("responses have\n%s\nchats\n%s", a, b)
		}
	}
}

// TestPeek: a proxy reads what a server reads, whether a server accepts it or not, and knows what it does not know.
func TestPeek(t *testing.T) {
	for _, tc := range []struct{ body, want, names, doubt string }{
		{`{"model":"m","instructions":"Be brief.","input":"Hi","stream":true,"max_output_tokens":5,"prompt_cache_key":"k","coppice":{"priority":3}}`, "system(Be brief.) user(Hi)", "", ""},
		{`{"input":[{"role":"user","content":"Hi"}],"unknown":1,"temperature":"hot"}`, "user(Hi)", "", ""},
		{`{"input":"x","previous_response_id":"` + first + `"}`, "user(x)", first, "previous_response_id is given"},
		{`{"input":[{"type":"item_reference","id":"msg_0000000000000002000000000000000a00"},{"role":"user","content":"x"}]}`, "user(x)", "msg_0000000000000002000000000000000a00", "is a reference"},
		{`{"input":[{"role":"user","content":[{"type":"input_image","image_url":"http://x"}]}]}`, "user(<|no text ", "", "reads text only"},
		{`{"input":[{"type":"web_search_call","id":"ws_1"},{"role":"user","content":"x"}]}`, "user(<|no text ", "", "web_search_call"},
		{`{"input":7}`, "", "", "input"}, {`{}`, "", "", "input is missing"}, {`{"input":[7]}`, "", "", "object"},
	} {
		var p openai.Peeked
		names, err := Peek([]byte(tc.body), &p)
		if err != nil {
			t.Errorf("%s: %v", tc.body, err)
			continue
		}
		if got := said(p.Messages); !strings.HasPrefix(got, tc.want) || names != tc.names {
			t.Errorf("%s: %s, which names %q", tc.body, got, names)
		}
		if (p.Doubt == nil) != (tc.doubt == "") || p.Doubt != nil && !strings.Contains(p.Doubt.Error(), tc.doubt) {
			t.Errorf("%s: the doubt is %v, want %q", tc.body, p.Doubt, tc.doubt)
		}
	}
	for _, body := range []string{``, `[]`, `{"input":"x"`, `{"input":"x"}}`, strings.Repeat(`{"a":`, 100)} {
		if _, err := Peek([]byte(body), &openai.Peeked{}); err == nil {
			t.Errorf("%.20q is read", body)
		}
	}
}

// FuzzDecode: no body makes the decoding panic, the proxy reads the prompt of each that is accepted, and what is stored of it
// gives the same conversation when it is continued.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"input":"x"}`, `{"input":[{"role":"user","content":"x"},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"}],"tools":[{"type":"function","name":"f"}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var p openai.Peeked
		_, peeked := Peek(body, &p)
		ask, err := Decode(body, Options{Find: stored().find})
		if err != nil {
			return
		}
		if peeked != nil || p.Doubt == nil && said(p.Messages) != said(ask.Messages) {
			t.Errorf("%q: a proxy reads %s, %v, the server %s", body, said(p.Messages), peeked, said(ask.Messages))
		}
		kept := store{}
		NewWire(ask, 10, func(id string, s *Stored) { kept[id] = s }).Whole(nil, &conversation.Answer{Head: conversation.Head{ID: "0000000000000003"}})
		if !ask.Store {
			return
		}
		for id, s := range stored() {
			kept[id] = s
		}
		again, err := Decode([]byte(`{"previous_response_id":"resp_0000000000000003000000000000000a","input":"y"}`), Options{Find: kept.find})
		if err != nil || !json.Valid(kept["resp_0000000000000003000000000000000a"].Input) {
			t.Fatalf("%q: what is stored of it can't be read: %v", body, err)
		}
		want := ask.Messages
		if text := ask.shown.instructions; text != nil && string(text) != `""` {
			want = want[1:] // the instructions are not carried over
		}
		if got := said(again.Messages); !strings.HasPrefix(got, said(want)) {
			t.Errorf("%q: stored is %s, want %s", body, got, said(want))
		}
	})
}
