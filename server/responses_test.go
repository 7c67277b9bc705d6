package server

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cpu"
)

// response is an answer of /v1/responses.
type response struct {
	ID, Object, Status, Model string
	Output                    []struct {
		ID, Type, Status, Name, Arguments string
		CallID                            string `json:"call_id"`
		Content                           []struct{ Type, Text string }
	}
	Usage struct {
		Input   int `json:"input_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"input_tokens_details"`
		Output int `json:"output_tokens"`
		Total  int `json:"total_tokens"`
	}
	Error struct{ Message, Type, Param, Code string }
}

// response sends a request, which must have this status.
func (b *bed) response(method, path, body string, status int) (r response) {
	b.Helper()
	a := b.do(method, "/v1/responses"+path, body)
	if a.StatusCode != status {
		b.Fatalf("%s %s %.200s: %s %s", method, path, body, a.Status, a.body)
	}
	b.ok(json.Unmarshal(a.body, &r))
	return r
}

// TestResponses: a turn has the text of the same turn of /v1/chat/completions, whole and as a stream, and a response can be
// continued, read and deleted.
func TestResponses(t *testing.T) {
	b := start(t, setup{CPU: cpu.Config{KVTokens: 8192}})
	const rest = `"instructions":"Be brief.","temperature":0,"max_output_tokens":12`
	want := b.merge(`{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"What is light?"}],"temperature":0,"max_tokens":12}`)
	r := b.response("POST", "", `{"model":"nano","input":"What is light?",`+rest+`}`, 200)
	if len(r.Output) != 1 || r.Output[0].Content[0].Text != want.content || r.Object != "response" || r.Model != "nano" || !strings.HasPrefix(r.ID, "resp_") {
		t.Errorf("%+v, want the text %q", r, want.content)
	}
	if r.Status != "incomplete" || r.Usage.Output != 12 || r.Usage.Details.Cached == 0 || r.Usage.Total != r.Usage.Input+12 {
		t.Errorf("%+v", r)
	}
	a := b.do("POST", "/v1/responses", `{"stream":true,"input":[{"role":"user","content":"What is light?"}],`+rest+`}`)
	text, last := "", ""
	var whole response
	for e := range strings.SplitSeq(strings.TrimSuffix(string(a.body), "\n\n"), "\n\n") {
		name, data, _ := strings.Cut(strings.TrimPrefix(e, "event: "), "\ndata: ")
		var v struct {
			Delta    string
			Response response
		}
		b.ok(json.Unmarshal([]byte(data), &v))
		text, last, whole = text+v.Delta, name, v.Response
	}
	if text != want.content || last != "response.incomplete" || whole.Output[0].Content[0].Text != text {
		t.Errorf("the stream has %q and ends with %s, %+v", text, last, whole)
	}
	for _, id := range []string{r.ID, whole.ID} {
		if got := b.response("GET", "/"+id, "", 200); got.ID != id || got.Output[0].Content[0].Text != want.content {
			t.Errorf("stored is %+v", got)
		}
	}
	messages := `[{"role":"system","content":"Be brief."},{"role":"user","content":"What is light?"},{"role":"assistant","content":` + string(quoted(text)) + `},{"role":"user","content":"Why?"}]`
	want = b.merge(`{"messages":` + messages + `,"temperature":0,"max_tokens":12}`)
	next := b.response("POST", "", `{"input":"Why?","previous_response_id":"`+r.ID+`",`+rest+`}`, 200)
	if next.Output[0].Content[0].Text != want.content || next.Usage.Details.Cached < r.Usage.Input {
		t.Errorf("the second turn: %+v, want %q", next, want.content)
	}
	if a := b.do("GET", "/v1/responses/"+next.ID+"/input_items?order=asc", ""); !strings.Contains(string(a.body), `"text":"Why?"`) || strings.Contains(string(a.body), "light") {
		t.Errorf("the items of the second turn: %s", a.body)
	}
	if e := b.response("POST", "/"+next.ID+"/cancel", `{}`, 400).Error; e.Type != "invalid_request_error" || !strings.Contains(e.Message, "background") {
		t.Errorf("cancelled: %+v", e)
	}
	b.response("DELETE", "/"+r.ID, "", 200)
	b.response("GET", "/"+r.ID, "", 404)
	if e := b.response("POST", "", `{"input":"x","previous_response_id":"`+next.ID+`"}`, 404).Error; e.Param != "previous_response_id" || e.Code != "previous_response_not_found" {
		t.Errorf("a conversation without its beginning: %+v", e)
	}
	unstored := b.response("POST", "", `{"input":"x","store":false,`+rest+`}`, 200)
	b.response("GET", "/"+unstored.ID, "", 404)
	b.quiet()
}

func quoted(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return b
}

// TestResponsesOfOthers: a stored response belongs to the tenant of its key, whose other keys may use it.
func TestResponsesOfOthers(t *testing.T) {
	b := start(t, setup{Server: Config{Keys: []Key{{Secret: "secret-of-a", Tenant: "a"}, {Secret: "second-of-a", Tenant: "a"}, {Secret: "secret-of-b", Tenant: "b", Admin: true}}}})
	b.key = "secret-of-a"
	id := b.response("POST", "", `{"input":"x","max_output_tokens":2}`, 200).ID
	for key, status := range map[string]int{"second-of-a": 200, "secret-of-b": 404} {
		b.key = key
		b.response("GET", "/"+id, "", status)
		b.response("POST", "", `{"input":"y","max_output_tokens":2,"previous_response_id":"`+id+`"}`, status)
		b.response("GET", "/"+id+"/input_items", "", status)
		if status == 404 {
			b.response("DELETE", "/"+id, "", status)
			b.response("POST", "/"+id+"/cancel", "{}", status)
			item := "msg_" + strings.TrimPrefix(id, "resp_") + "00"
			if e := b.response("POST", "", `{"input":[{"type":"item_reference","id":"`+item+`"}]}`, 404).Error; !strings.Contains(e.Message, "another key") {
				t.Errorf("%+v", e)
			}
		}
	}
}

// TestResponsesDir: with ResponsesDir responses outlive the server.
func TestResponsesDir(t *testing.T) {
	dir := t.TempDir()
	b := start(t, setup{Server: Config{ResponsesDir: dir}})
	id := b.response("POST", "", `{"input":"x","max_output_tokens":2}`, 200).ID
	b = start(t, setup{Server: Config{ResponsesDir: dir}})
	b.response("POST", "", `{"input":"y","max_output_tokens":2,"previous_response_id":"`+id+`"}`, 200)
}

// TestResponsesRoom: stored responses take no more than ResponsesBytes, and a conversation that is too long to be read again is
// refused before it is read.
func TestResponsesRoom(t *testing.T) {
	b := start(t, setup{Server: Config{ResponsesBytes: 8192}})
	first := b.response("POST", "", `{"input":"x","max_output_tokens":2}`, 200).ID
	b.response("GET", "/"+first, "", 200)
	for i := range 8 {
		b.response("POST", "", fmt.Sprintf(`{"input":"%d","max_output_tokens":2}`, i), 200)
	}
	b.response("GET", "/"+first, "", 404)
	if bytes, _ := b.srv.responses.Bytes(); bytes > 8192 {
		t.Errorf("%d bytes are stored", bytes)
	}
}

// TestResponsesParam: errors of the node and of the template name the fields of this API.
func TestResponsesParam(t *testing.T) {
	b := start(t, setup{Server: Config{Controls: 1}})
	if e := b.response("POST", "", `{"input":"<|end_of_text|>"}`, 400).Error; e.Param != "input" {
		t.Errorf("%+v", e)
	}
}

// TestResponsesScores: the log-probabilities of a response are those of the same turn of /v1/chat/completions, whole and as a stream.
func TestResponsesScores(t *testing.T) {
	type score struct {
		Token   string
		Logprob float64
		Bytes   []int
		Top     []score `json:"top_logprobs"`
	}
	b := start(t, setup{})
	var want struct {
		Choices []struct{ Logprobs struct{ Content []score } }
	}
	const rest = `"temperature":0,"seed":1,"top_logprobs":2,`
	a := b.do("POST", "/v1/chat/completions", `{`+rest+`"logprobs":true,"max_tokens":8,"messages":[{"role":"user","content":"What is light?"}]}`)
	b.ok(json.Unmarshal(a.body, &want))
	all := want.Choices[0].Logprobs.Content
	if len(all) < 4 || len(all[0].Top) != 2 {
		t.Fatalf("%s", a.body)
	}
	for _, stream := range []string{"false", "true"} {
		a := b.do("POST", "/v1/responses", `{`+rest+`"stream":`+stream+`,"include":["message.output_text.logprobs"],"max_output_tokens":8,"input":"What is light?"}`)
		var said struct {
			Top    int `json:"top_logprobs"`
			Output []struct{ Content []struct{ Logprobs []score } }
		}
		body, deltas := a.body, []score(nil)
		if stream == "true" {
			for e := range strings.SplitSeq(strings.TrimSuffix(string(a.body), "\n\n"), "\n\n") {
				name, data, _ := strings.Cut(strings.TrimPrefix(e, "event: "), "\ndata: ")
				var v struct {
					Logprobs []score
					Response json.RawMessage
				}
				b.ok(json.Unmarshal([]byte(data), &v))
				switch name {
				case "response.output_text.delta":
					deltas = append(deltas, v.Logprobs...)
				case "response.output_text.done":
					if !reflect.DeepEqual(v.Logprobs, deltas) {
						t.Errorf("done has %v, the deltas %v", v.Logprobs, deltas)
					}
				case "response.incomplete", "response.completed":
					body = v.Response
				}
			}
		}
		b.ok(json.Unmarshal(body, &said))
		if got := said.Output[0].Content[0].Logprobs; said.Top != 2 || len(got) < 3 || !reflect.DeepEqual(got, all[:len(got)]) || len(got) < len(all)-1 {
			for i := range all {
				t.Logf("%+v", all[i])
				if i < len(got) {
					t.Logf("%+v", got[i])
				}
			}
			t.Errorf("stream %s: top %d, %d of %d tokens", stream, said.Top, len(got), len(all))
		}
	}
}
