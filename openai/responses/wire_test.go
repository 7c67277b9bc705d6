package responses

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/coppice-llm/coppice/conversation"
)

var head = conversation.Head{ID: "0123456789abcdef", Created: 1700000000, Model: "m", PromptTokens: 100}

// outputs are what a model says.
var outputs = map[string][]conversation.Event{
	"text": {{Kind: conversation.Text, Text: "Let me \"see\""}, {Kind: conversation.Text, Text: "."}},
	"all": {
		{Kind: conversation.Thought, Text: "Hm"}, {Kind: conversation.Thought, Text: "m."}, {Kind: conversation.Text, Text: "Well.\n"},
		{Kind: conversation.Call, Text: "f", CallID: "1"}, {Kind: conversation.Arguments, Text: `{"a":`, CallID: "1"}, {Kind: conversation.Arguments, Text: `1}`, CallID: "1"},
		{Kind: conversation.Call, Text: "g", CallID: "2"},
	},
	"nothing": {},
	// The marks around the reasoning, and the stop token, are no part of the text. The é has two tokens.
	"scored": {
		scored(-1, "<think>"), scored(-2, "Hm"), {Kind: conversation.Thought, Text: "Hm"}, scored(-3, "</think>", "\n"), scored(-4, "W"), {Kind: conversation.Text, Text: "W"},
		scored(-5, "\xc3"), scored(-6, "\xa9"), {Kind: conversation.Text, Text: "é"}, scored(-7, ""),
		{Kind: conversation.Call, Text: "f", CallID: "1"},
	},
	"thought": {{Kind: conversation.Thought, Text: "Hm"}},
}

// scored are tokens with a log-probability, and each with itself as the best one.
func scored(logprob float32, tokens ...string) conversation.Event {
	e := conversation.Event{Kind: conversation.Scores}
	for _, text := range tokens {
		own := conversation.Score{Bytes: []byte(text), Logprob: logprob}
		e.Scores = append(e.Scores, conversation.Score{Bytes: own.Bytes, Logprob: logprob, Top: []conversation.Score{own}})
	}
	return e
}

var reasons = map[string]conversation.Reason{"stop": conversation.Stopped, "length": conversation.Full, "calls": conversation.Called}

// spoke returns the response to a request, as a stream and whole, and the stored form of each.
func spoke(t *testing.T, body, output, end string) (stream, whole string, stored [2]*Stored) {
	t.Helper()
	ask, err := Decode([]byte(body), Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	w := NewWire(ask, 10, func(_ string, s *Stored) { stored[at] = s })
	ending := conversation.Ending{Reason: reasons[end], Usage: conversation.Usage{PromptTokens: 100, CachedTokens: 30, CompletionTokens: 9}}
	s := w.Stream()
	dst := s.Begin(nil, &head)
	answer := conversation.Answer{Head: head, Ending: ending}
	for _, e := range outputs[output] {
		dst = s.Event(dst, e)
		answer.Add(e)
	}
	if end == "fault" {
		return string(s.Fault(dst, conversation.NewError(http.StatusServiceUnavailable, "shutting_down", "the server is shutting down"))), "", stored
	}
	dst = s.End(dst, &ending)
	at = 1
	return string(dst), string(w.Whole(nil, &answer)), stored
}

// TestWire writes the answers in testdata/wire, whose bodies are requests.
func TestWire(t *testing.T) {
	sameResponse := regexp.MustCompile(`"response":\{"object":"response".*\}\}`)
	datadriven.RunTest(t, "testdata/wire", func(t *testing.T, d *datadriven.TestData) string {
		var output, end string
		d.ScanArgs(t, "output", &output)
		d.ScanArgs(t, "end", &end)
		stream, whole, stored := spoke(t, d.Input, output, end)
		switch d.Cmd {
		case "whole":
			return whole + "\n"
		case "stored":
			return fmt.Sprintf("%s\n", stored[0].Input)
		}
		stream = strings.ReplaceAll(stream, "\n\n", "\n")
		return sameResponse.ReplaceAllString(stream, `"response":…}`)
	})
}

// TestStreamIsWhole: the last event of a stream has the response that is sent whole, each event is one of JSON with the next
// number, and the stored response equals the one that was sent.
func TestStreamIsWhole(t *testing.T) {
	for output := range outputs {
		for end := range reasons {
			for _, body := range []string{`{"input":"x"}`, `{"input":"x","reasoning":{"summary":"auto"},"tools":[{"type":"function",` + "\n" + `"name":"f"}]}`} {
				stream, whole, stored := spoke(t, body, output, end)
				events := strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n")
				var last struct {
					Type     string
					Number   int `json:"sequence_number"`
					Response json.RawMessage
				}
				for i, e := range events {
					kind, data, ok := strings.Cut(strings.TrimPrefix(e, "event: "), "\ndata: ")
					if err := json.Unmarshal([]byte(data), &last); err != nil || !ok || last.Type != kind || last.Number != i {
						t.Fatalf("%s, %s: event %d is %q: %v", output, end, i, e, err)
					}
				}
				if string(last.Response) != whole || string(stored[0].Response) != whole || string(stored[1].Response) != whole {
					t.Errorf("%s, %s: streamed is\n%s\nwhole\n%s\nstored\n%s", output, end, last.Response, whole, stored[0].Response)
				}
			}
		}
	}
}

// TestNotStored: with store false nothing is kept, and the response says so.
func TestNotStored(t *testing.T) {
	_, whole, stored := spoke(t, `{"input":"x","store":false}`, "text", "stop")
	if stored[0] != nil || stored[1] != nil || !strings.Contains(whole, `"store":false`) {
		t.Errorf("stored %v; %s", stored, whole)
	}
}

// TestIDs: an id of a response or of an item leads to the response and its worker.
func TestIDs(t *testing.T) {
	for id, want := range map[string]string{
		first: first, "msg_0000000000000001000000000000000a00": first, "fc_0000000000000001000000000000000ai12": first, "resp_1": "", "": "", "msg_": "",
		"resp_000000000000000100000000000000zz": "", "0000000000000001000000000000000a": "",
	} {
		if got := ResponseOf(id); got != want {
			t.Errorf("%q is of %q, want %q", id, got, want)
		}
	}
	if got := WorkerOf(first); got != 10 {
		t.Errorf("the worker is %d, want 10", got)
	}
	if got := WorkerOf("resp_x"); got != 0 {
		t.Errorf("the worker of nothing is %d", got)
	}
}

// TestInputItems: the list of the input items, in both orders, page by page.
func TestInputItems(t *testing.T) {
	_, _, stored := spoke(t, `{"input":[{"role":"user","content":"a"},{"role":"assistant","id":"msg_b","content":"b"},{"role":"user","content":[{"type":"input_text","text":"c"}]}]}`, "text", "stop")
	query := func(values ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(values); i += 2 {
				if values[i] == name {
					return values[i+1]
				}
			}
			return ""
		}
	}
	digits := "0123456789abcdef000000000000000a"
	for _, tc := range []struct {
		query []string
		first string
		last  string
		more  bool
	}{
		{nil, "msg_" + digits + "i2", "msg_" + digits + "i0", false},
		{[]string{"order", "asc", "limit", "2"}, "msg_" + digits + "i0", "msg_b", true},
		{[]string{"order", "asc", "after", "msg_b"}, "msg_" + digits + "i2", "msg_" + digits + "i2", false},
		{[]string{"after", "msg_b"}, "msg_" + digits + "i0", "msg_" + digits + "i0", false},
	} {
		page, err := ReadPage(query(tc.query...))
		if err != nil {
			t.Fatal(err)
		}
		text, err := AppendInputItems(nil, stored[0], page)
		var list struct {
			Data    []struct{ ID, Type string }
			First   string `json:"first_id"`
			Last    string `json:"last_id"`
			HasMore bool   `json:"has_more"`
		}
		if err == nil {
			err = json.Unmarshal(text, &list)
		}
		if err != nil || list.First != tc.first || list.Last != tc.last || list.HasMore != tc.more || list.Data[0].ID != tc.first || list.Data[0].Type != "message" {
			t.Errorf("%v: %s, %v", tc.query, text, err)
		}
	}
	for _, q := range [][]string{{"limit", "0"}, {"limit", "101"}, {"limit", "x"}, {"order", "up"}} {
		if _, err := ReadPage(query(q...)); err == nil {
			t.Errorf("%v is read", q)
		}
	}
	if _, err := AppendInputItems(nil, stored[0], Page{Limit: 1, After: "msg_x"}); err == nil {
		t.Error("a page after no item")
	}
}
