package ollama

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/kv"
)

var (
	arrived = time.Date(2026, 1, 2, 3, 4, 5, 600, time.FixedZone("", 3600))
	head    = conversation.Head{ID: "0123", Model: "m", PromptTokens: 9}
	ending  = conversation.Ending{
		Usage: conversation.Usage{PromptTokens: 9, CachedTokens: 4, CompletionTokens: 3}, Tokens: []kv.Token{5, 6, 7},
		Times: conversation.Times{Queued: time.Microsecond, FirstToken: 3 * time.Microsecond, Total: 10 * time.Microsecond},
	}
)

const (
	from    = `{"model":"m","created_at":"2026-01-02T02:04:05.0010006Z",`
	figures = `"total_duration":1000000,"load_duration":1000,"prompt_eval_count":9,"prompt_cached_count":4,"prompt_eval_duration":2000,"eval_count":3,"eval_duration":7000}`
)

func wireOf(form Answers) *Wire {
	return NewWire(form, arrived, func() time.Time { return arrived.Add(time.Millisecond) })
}

// play returns a stream of events.
func play(form Answers, end conversation.Ending, events ...conversation.Event) string {
	w := wireOf(form).Stream()
	out := w.Begin(nil, &head)
	for _, e := range events {
		out = w.Event(out, e)
	}
	return string(w.End(out, &end))
}

// TestStream: each event is a line, calls are whole, and the last line has the figures.
func TestStream(t *testing.T) {
	got := play(ChatAnswer, ending,
		conversation.Event{Kind: conversation.Thought, Text: "Hm."},
		conversation.Event{Kind: conversation.Scores, Scores: []conversation.Score{{Bytes: []byte("Hé"), Logprob: -0.5, Top: []conversation.Score{{Bytes: []byte("A"), Logprob: -0.25}}}}},
		conversation.Event{Kind: conversation.Text, Text: "Hé"},
		conversation.Event{Kind: conversation.Call, Text: "weather", CallID: "0123_0"},
		conversation.Event{Kind: conversation.Arguments, Text: `{"city":`, CallID: "0123_0"},
		conversation.Event{Kind: conversation.Arguments, Text: `"Paris"}`, CallID: "0123_0"},
		conversation.Event{Kind: conversation.Call, Text: "clock", CallID: "0123_1"},
	)
	want := from + `"message":{"role":"assistant","content":"","thinking":"Hm."},"done":false}
` + from + `"message":{"role":"assistant","content":"Hé"},"logprobs":[{"token":"Hé","logprob":-0.5,"bytes":[72,195,169],"top_logprobs":[{"token":"A","logprob":-0.25,"bytes":[65]}]}],"done":false}
` + from + `"message":{"role":"assistant","content":"","tool_calls":[{"id":"call_0123_0","function":{"index":0,"name":"weather","arguments":{"city":"Paris"}}}]},"done":false}
` + from + `"message":{"role":"assistant","content":"","tool_calls":[{"id":"call_0123_1","function":{"index":1,"name":"clock","arguments":{}}}]},"done":false}
` + from + `"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop",` + figures + "\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestCutCall: a call whose arguments the limit of tokens cut is left out, streamed or not.
func TestCutCall(t *testing.T) {
	end := ending
	end.Reason = conversation.Full
	events := []conversation.Event{{Kind: conversation.Call, Text: "f", CallID: "0"}, {Kind: conversation.Arguments, Text: `{"a":`, CallID: "0"}}
	a := conversation.Answer{Head: head, Ending: end}
	for _, e := range events {
		a.Add(e)
	}
	for _, got := range []string{play(ChatAnswer, end, events...), string(wireOf(ChatAnswer).Whole(nil, &a))} {
		if strings.Contains(got, "tool_calls") || !strings.Contains(got, `"done_reason":"length"`) || !json.Valid([]byte(got)) {
			t.Error(got)
		}
	}
}

// TestGenerateStream: the text is response, and the last line has the tokens of the conversation.
func TestGenerateStream(t *testing.T) {
	text := conversation.Event{Kind: conversation.Text, Text: "Hi"}
	got := play(GenerateAnswer, ending, text)
	want := from + `"response":"Hi","done":false}
` + from + `"response":"","done":true,"done_reason":"stop","context":[5,6,7],` + figures + "\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := play(RawAnswer, ending, text); strings.Contains(got, "context") {
		t.Error(got)
	}
	long := ending
	long.Tokens = make([]kv.Token, maxGivenContext+1)
	if got := play(GenerateAnswer, long, text); strings.Contains(got, "context") {
		t.Error("a context over the limit is given back")
	}
}

// TestWhole: text, reasoning and calls in one object.
func TestWhole(t *testing.T) {
	a := conversation.Answer{Head: head, Ending: ending}
	for _, e := range []conversation.Event{
		{Kind: conversation.Thought, Text: "Hm."}, {Kind: conversation.Scores, Scores: []conversation.Score{{Bytes: []byte("H"), Logprob: -1}}}, {Kind: conversation.Text, Text: "H"}, {Kind: conversation.Text, Text: "i"},
		{Kind: conversation.Call, Text: "f", CallID: "0"}, {Kind: conversation.Arguments, Text: `{"a":1}`, CallID: "0"},
	} {
		a.Add(e)
	}
	want := from + `"message":{"role":"assistant","content":"Hi","thinking":"Hm.","tool_calls":[{"id":"call_0","function":{"index":0,"name":"f","arguments":{"a":1}}}]},"logprobs":[{"token":"H","logprob":-1,"bytes":[72]}],"done":true,"done_reason":"stop",` + figures
	if got := string(wireOf(ChatAnswer).Whole(nil, &a)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestFault: a stream that fails ends with a line that has the error.
func TestFault(t *testing.T) {
	w := wireOf(ChatAnswer).Stream()
	if got := string(w.Fault(w.Begin(nil, &head), conversation.NewError(500, "c", "it \"failed\""))); got != "{\"error\":\"it \\\"failed\\\"\"}\n" {
		t.Error(got)
	}
	if got := string(wireOf(ChatAnswer).AppendLoaded(nil, "m", true)); got != from+`"message":{"role":"assistant","content":""},"done":true,"done_reason":"unload"}` {
		t.Error(got)
	}
}

// TestModels: descriptions of a model.
func TestModels(t *testing.T) {
	f := Facts{
		Names: []string{"org/m", "m:8b"}, Identity: "id", Format: "gguf", Architecture: "LlamaForCausalLM", Weights: "Q4_K", Parameters: 8_030_000_000, Bytes: 5, ContextTokens: 4096, EmbeddingSize: 64,
		Modified: arrived.UTC(), Capabilities: []string{"completion"},
	}
	const details = `"details":{"parent_model":"","format":"gguf","family":"llama","families":["llama"],"parameter_size":"8.0B","quantization_level":"Q4_K"}`
	tags := string(Tags(f))
	for _, want := range []string{`{"models":[{"name":"org/m:latest","model":"org/m:latest","modified_at":"2026-01-02T02:04:05.0000006Z","size":5,"digest":"`, details, `"name":"m:8b","model":"m:8b"`} {
		if !strings.Contains(tags, want) {
			t.Errorf("%s lacks %s", tags, want)
		}
	}
	if got := string(Running(f)); !strings.Contains(got, `"expires_at":"9999-12-31T23:59:59Z","size_vram":5,"context_length":4096`) {
		t.Error(got)
	}
	if got := string(f.Show()); !strings.Contains(got, `"model_info":{"general.architecture":"llama","general.parameter_count":8030000000,"llama.context_length":4096,"llama.embedding_length":64},"capabilities":["completion"]`) {
		t.Error(got)
	}
	if got := string(Tags()); got != `{"models":[]}` {
		t.Error(got)
	}
	for name, want := range map[string]bool{"org/m": true, "org/m:latest": true, "m:8b": true, "m": false, "m:8b:latest": true} {
		if Serves(name, f.Names) != want {
			t.Errorf("serves %s: %v", name, !want)
		}
	}
}
