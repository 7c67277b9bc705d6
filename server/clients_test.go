package server

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/scheduler"
)

// recorded is a request recorded from a client library with default settings, see
// testdata/clients.jsonl.
type recorded struct {
	Client string
	Body   json.RawMessage
}

func readRecorded(t *testing.T) (all []recorded) {
	data, err := os.ReadFile("testdata/clients.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var r recorded
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// toolCall is a tool call in an answer.
type toolCall struct {
	Index    int
	ID, Type string
	Function struct{ Name, Arguments string }
}

// merged is an answer, or the merged chunks of a stream.
type merged struct {
	content, finish string
	calls           []toolCall
}

func (b *bed) merge(body string) (a merged) {
	b.Helper()
	type message struct {
		Content string
		Calls   []toolCall `json:"tool_calls"`
	}
	var answers []struct {
		Choices []struct {
			Message, Delta message
			Finish         string `json:"finish_reason"`
		}
	}
	raw := b.do("POST", "/v1/chat/completions", body)
	if raw.StatusCode != 200 {
		b.Fatalf("%.300s: %s %s", body, raw.Status, raw.body)
	}
	text := string(raw.body)
	if rest, ok := strings.CutPrefix(text, "data: "); ok {
		events := strings.Split(strings.TrimSuffix(rest, "\n\ndata: [DONE]\n\n"), "\n\ndata: ")
		text = "[" + strings.Join(events, ",") + "]"
	} else {
		text = "[" + text + "]"
	}
	b.ok(json.Unmarshal([]byte(text), &answers))
	for _, answer := range answers {
		for _, c := range answer.Choices {
			a.content += c.Message.Content + c.Delta.Content
			a.finish += c.Finish
			a.calls = append(a.calls, c.Message.Calls...)
			for _, call := range c.Delta.Calls {
				if call.Index == len(a.calls) {
					a.calls = append(a.calls, call)
				} else {
					a.calls[call.Index].Function.Arguments += call.Function.Arguments
				}
			}
		}
	}
	return a
}

// TestClients sends recorded requests of client libraries. If a tool call is forced, the answer
// consists of calls whose arguments are objects, unless the output was cut off. If the output
// must match a schema, it is JSON.
func TestClients(t *testing.T) {
	b := start(t, setup{CPU: cpu.Config{KVTokens: 16384}, Node: coppice.Config{Scheduler: scheduler.Config{DefaultMaxTokens: 4096}}})
	for _, r := range readRecorded(t) {
		t.Run(r.Client, func(t *testing.T) {
			b.TB = t
			var asked struct {
				Choice json.RawMessage `json:"tool_choice"`
				Format json.RawMessage `json:"response_format"`
				Tools  []struct{ Function struct{ Name string } }
			}
			b.ok(json.Unmarshal(r.Body, &asked))
			a := b.merge(strings.Replace(string(r.Body), "{", `{"seed":3,`, 1))
			forced := asked.Choice != nil && string(asked.Choice) != `"auto"`
			switch {
			case forced && a.finish == "tool_calls" && len(a.calls) > 0 && a.content == "":
			case asked.Format != nil && json.Valid([]byte(a.content)):
			case forced || asked.Format != nil:
				if a.finish != "length" {
					t.Errorf("answered %+v", a)
				}
			case a.finish != "stop" && a.finish != "length":
				t.Errorf("ended with %q", a.finish)
			}
			for i, call := range a.calls {
				var arguments map[string]any
				if err := json.Unmarshal([]byte(call.Function.Arguments), &arguments); err != nil && (a.finish != "length" || i < len(a.calls)-1) {
					t.Errorf("call %+v: %v", call, err)
				}
				if call.ID == "" || call.Type != "function" || call.Function.Name != asked.Tools[0].Function.Name {
					t.Errorf("call %+v", call)
				}
			}
		})
	}
}

// TestToolsInParallel: several calls if parallel calls are allowed, one if not.
func TestToolsInParallel(t *testing.T) {
	b := start(t, setup{})
	const ask = `{"messages":[{"role":"user","content":"x"}],"max_tokens":1200,"logit_bias":{"%b":4},"seed":%d,"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g","parameters":{"properties":{"a":{"enum":[1,2]}},"required":["a"]}}}],"tool_choice":"required"%s}`
	most, named := 0, map[string]bool{}
	for seed := range 4 {
		at := func(more string) merged {
			return b.merge(strings.NewReplacer("%b", fmt.Sprint(b.tok.Encode(nil, "\n")[0]), "%d", fmt.Sprint(seed), "%s", more).Replace(ask))
		}
		whole, stream := at(""), at(`,"stream":true`)
		if len(whole.calls) != len(stream.calls) || whole.finish != stream.finish || whole.finish != "tool_calls" {
			t.Errorf("seed %d: %+v, streamed %+v", seed, whole, stream)
		}
		for i, c := range whole.calls {
			named[c.Function.Name+c.Function.Arguments] = true
			if s := stream.calls[i]; s.Function != c.Function {
				t.Errorf("seed %d: call %d is %+v, streamed %+v", seed, i, c, s)
			}
		}
		most = max(most, len(whole.calls))
		if one := at(`,"parallel_tool_calls":false`); len(one.calls) != 1 || one.finish != "tool_calls" {
			t.Errorf("seed %d: one call at most: %+v", seed, one)
		}
	}
	if most < 2 || len(named) < 2 || most > 16 {
		t.Errorf("at most %d calls, of %v", most, named)
	}
	b.quiet()
}

// TestIgnored: a field without influence on the output is named in the header. An unknown one is
// refused unless the server is configured to ignore it.
func TestIgnored(t *testing.T) {
	strict := start(t, setup{})
	const known, unknown = `{"prompt":"x","max_tokens":1,"rid":"5","keep_alive":"5m"}`, `{"prompt":"x","max_tokens":1,"colour":1}`
	a := strict.do("POST", "/v1/completions", known)
	if got := a.Header.Get("X-Coppice-Ignored"); a.StatusCode != 200 || got != "rid, keep_alive" {
		t.Errorf("%s, ignored %q", a.Status, got)
	}
	if a := strict.do("POST", "/v1/completions", `{"prompt":"x","max_tokens":1}`); len(a.Header.Values("X-Coppice-Ignored")) != 0 {
		t.Errorf("ignored %q of nothing", a.Header.Get("X-Coppice-Ignored"))
	}
	strict.refused("POST", "/v1/completions", unknown, 400, "unknown_parameter")
	lenient := start(t, setup{Server: Config{UnknownFields: openai.IgnoreUnknown}})
	a = lenient.do("POST", "/v1/completions", unknown)
	if got := a.Header.Get("X-Coppice-Ignored"); a.StatusCode != 200 || got != "colour" {
		t.Errorf("%s, ignored %q", a.Status, got)
	}
}
