package anthropic

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/conversation"
)

var head = conversation.Head{ID: "0123456789abcdef", Model: "m", PromptTokens: 100}

var events = []conversation.Event{
	{Kind: conversation.Thought, Text: "Hm"}, {Kind: conversation.Thought, Text: "m."}, {Kind: conversation.Text, Text: "Let me \"see\""}, {Kind: conversation.Text, Text: "."},
	{Kind: conversation.Call, Text: "f", CallID: "1"}, {Kind: conversation.Arguments, Text: `{"a":`, CallID: "1"}, {Kind: conversation.Arguments, Text: `1}`, CallID: "1"},
	{Kind: conversation.Call, Text: "g", CallID: "2"}, {Kind: conversation.Arguments, Text: `{}`, CallID: "2"},
}

var ending = conversation.Ending{Reason: conversation.Called, Usage: conversation.Usage{PromptTokens: 100, CachedTokens: 30, CompletionTokens: 9}}

// covers has breakpoints after 20, 50 and 90 tokens.
func covers() *Wire {
	return &Wire{Covered: []int{20, 50, 90}, TTLs: []time.Duration{time.Hour, time.Hour, 5 * time.Minute}}
}

const usage = `"usage":{"input_tokens":10,"cache_creation_input_tokens":60,"cache_read_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":40,"ephemeral_1h_input_tokens":20},"output_tokens":9,"service_tier":"standard"}`

// TestStream is a whole stream with all kinds of blocks.
func TestStream(t *testing.T) {
	w := covers().Stream()
	out := w.Begin(nil, &head)
	for _, e := range events {
		out = w.Event(out, e)
	}
	out = w.End(out, &ending)
	want := `
message_start {"type":"message_start","message":{"id":"msg_0123456789abcdef","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":100,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":0,"service_tier":"standard"}}}
ping {"type":"ping"}
content_block_start {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}
content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm"}}
content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"m."}}
content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"bm90IHNpZ25lZA=="}}
content_block_stop {"type":"content_block_stop","index":0}
content_block_start {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}
content_block_delta {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Let me \"see\""}}
content_block_delta {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"."}}
content_block_stop {"type":"content_block_stop","index":1}
content_block_start {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"f","input":{}}}
content_block_delta {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}
content_block_delta {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"1}"}}
content_block_stop {"type":"content_block_stop","index":2}
content_block_start {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_2","name":"g","input":{}}}
content_block_delta {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{}"}}
content_block_stop {"type":"content_block_stop","index":3}
message_delta {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},` + usage + `}
message_stop {"type":"message_stop"}
`
	var got strings.Builder
	got.WriteString("\n")
	for e := range strings.SplitSeq(strings.TrimSuffix(string(out), "\n\n"), "\n\n") {
		name, data, ok := strings.Cut(strings.TrimPrefix(e, "event: "), "\ndata: ")
		if !ok || !json.Valid([]byte(data)) {
			t.Errorf("%q is no event", e)
		}
		got.WriteString(name + " " + data + "\n")
	}
	if got.String() != want {
		t.Errorf("got%swant%s", got.String(), want)
	}
}

var answerOf = conversation.Answer{Head: head, Ending: ending}

// TestWhole is the same answer, not streamed.
func TestWhole(t *testing.T) {
	a := conversation.Answer{Head: head, Ending: ending}
	for _, e := range events {
		a.Add(e)
	}
	want := `{"id":"msg_0123456789abcdef","type":"message","role":"assistant","model":"m","content":[{"type":"thinking","thinking":"Hmm.","signature":"bm90IHNpZ25lZA=="},{"type":"text","text":"Let me \"see\"."},{"type":"tool_use","id":"toolu_1","name":"f","input":{"a":1}},{"type":"tool_use","id":"toolu_2","name":"g","input":{}}],"stop_reason":"tool_use","stop_sequence":null,` + usage + `}`
	if got := string(covers().Whole(nil, &a)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	a = conversation.Answer{Head: head, Ending: conversation.Ending{Reason: conversation.StopString, StopString: "b", Usage: ending.Usage}}
	got := string((&Wire{}).Whole(nil, &a))
	if !json.Valid([]byte(got)) || !strings.Contains(got, `"content":[],"stop_reason":"stop_sequence","stop_sequence":"b","usage":{"input_tokens":70,"cache_creation_input_tokens":0,"cache_read_input_tokens":30`) {
		t.Error(got)
	}
	a = conversation.Answer{Head: head, Ending: conversation.Ending{Reason: conversation.Full}}
	for _, e := range events[4:6] {
		a.Add(e)
	}
	if got := string((&Wire{Window: true}).Whole(nil, &a)); !strings.Contains(got, `"stop_reason":"model_context_window_exceeded"`) {
		t.Error(got)
	}
	if got := string((&Wire{}).Whole(nil, &a)); !json.Valid([]byte(got)) || !strings.Contains(got, `"input":{}}],"stop_reason":"max_tokens"`) {
		t.Errorf("arguments that were cut: %s", got)
	}
}

// TestErrors: each status has its type, and an error ends a stream as an event.
func TestErrors(t *testing.T) {
	for status, kind := range map[int]string{400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error", 405: "invalid_request_error",
		408: "timeout_error", 413: "request_too_large", 415: "invalid_request_error", 429: "rate_limit_error", 500: "api_error", 502: "api_error", 503: "overloaded_error"} {
		e := conversation.NewError(status, "c", "no \"x\"")
		if got, want := string(AppendError(nil, e)), `{"type":"error","error":{"type":"`+kind+`","message":"no \"x\""},"request_id":null}`; got != want {
			t.Errorf("%d: %s, want %s", status, got, want)
		}
	}
	if got := string(AppendError(nil, conversation.NewError(400, "context_length_exceeded", "7 tokens"))); !strings.Contains(got, `"prompt is too long: 7 tokens"`) {
		t.Error(got)
	}
	e := &conversation.Error{Status: 500, Message: "m", RequestID: "r"}
	if got := string((&Wire{}).Stream().Fault(nil, e)); got != "event: error\ndata: "+`{"type":"error","error":{"type":"api_error","message":"m"},"request_id":"r"}`+"\n\n" {
		t.Error(got)
	}
}

// TestModels: a list is one page.
func TestModels(t *testing.T) {
	m := Model{ID: "m", Created: time.Unix(1700000000, 0), MaxTokens: 512}
	const want = `{"type":"model","id":"m","display_name":"m","created_at":"2023-11-14T22:13:20Z","lifecycle":"active","max_input_tokens":512,"max_tokens":512}`
	if got := string(AppendModels(nil, []Model{m})); got != `{"data":[`+want+`],"has_more":false,"first_id":"m","last_id":"m"}` {
		t.Error(got)
	}
	if got := string(AppendModels(nil, nil)); got != `{"data":[],"has_more":false,"first_id":null,"last_id":null}` {
		t.Error(got)
	}
	for path, want := range map[string]bool{"/v1/messages": true, "/v1/messages/count_tokens": true, "/v1/messagesx": false, "/v1/models": false} {
		r, err := http.NewRequest("GET", "http://h"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if Speaks(r) != want {
			t.Errorf("%s: %v", path, !want)
		}
		if r.Header.Set("anthropic-version", "2023-06-01"); !Speaks(r) {
			t.Errorf("%s with the header is not of this API", path)
		}
	}
}
