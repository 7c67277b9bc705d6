package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/scheduler"
)

// draftless returns an answer as JSON without ids, times, and counts of guesses and of cached tokens. The
// chunks of a stream, whose number depends on guesses, are joined to one.
func (b *bed) draftless(path, body string) string {
	b.Helper()
	a := b.do("POST", path, body)
	if a.StatusCode != 200 {
		b.Fatalf("%s %s: %s %s", path, body, a.Status, a.body)
	}
	all := []string{string(a.body)}
	if text, ok := strings.CutPrefix(all[0], "data: "); ok {
		text, done := strings.CutSuffix(text, "\n\ndata: [DONE]\n\n")
		if all = strings.Split(text, "\n\ndata: "); !done {
			b.Errorf("%s %s: no end in %s", path, body, a.body)
		}
	}
	var joined any
	for _, one := range all {
		var chunk map[string]any
		b.ok(json.Unmarshal([]byte(one), &chunk))
		joined = join(joined, chunk)
	}
	got, err := json.Marshal(joined)
	b.ok(err)
	return string(got)
}

// join returns the value of a chunk after that of earlier ones: lists and texts grow, choices by their index.
func join(before, chunk any) any {
	switch chunk := chunk.(type) {
	case nil:
		return before
	case map[string]any:
		all, ok := before.(map[string]any)
		if !ok {
			all = map[string]any{}
		}
		for k, v := range chunk {
			switch k {
			case "id", "created", "accepted_prediction_tokens", "rejected_prediction_tokens", "cached_tokens":
			case "choices":
				byIndex, ok := all[k].(map[string]any)
				if !ok {
					byIndex = map[string]any{}
				}
				for _, c := range v.([]any) {
					at := fmt.Sprint(c.(map[string]any)["index"])
					byIndex[at] = join(byIndex[at], c)
				}
				all[k] = byIndex
			case "content", "text":
				if text, ok := v.(string); ok {
					sofar, _ := all[k].(string)
					all[k] = sofar + text
					continue
				}
				all[k] = join(all[k], v)
			default:
				all[k] = join(all[k], v)
			}
		}
		return all
	case []any:
		sofar, _ := before.([]any)
		return append(slices.Clip(sofar), chunk...)
	}
	return chunk
}

// TestSpeculateSame: with guesses and predictions, answers of both endpoints have the same contents as without, at
// each temperature, with scores, several choices, stop strings, penalties, biases and a schema, whole and as a stream.
func TestSpeculateSame(t *testing.T) {
	t.Parallel()
	off := start(t, setup{})
	on := start(t, setup{Node: coppice.Config{Scheduler: scheduler.Config{Speculate: scheduler.SpeculateAuto}}})
	schema := `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"length":{"enum":[1,2]}},` +
		`"required":["length"],"additionalProperties":false}}}`
	for i, options := range []string{
		`"temperature":0`, `"temperature":1,"seed":3`, `"temperature":0.7,"seed":4,"n":3`, `"temperature":1,"seed":5,"stop":["a","e"]`,
		`"temperature":0,"frequency_penalty":0.5,"presence_penalty":0.25`, `"temperature":0.9,"seed":6,"logit_bias":{"70":3,"71":-100}`,
		`"temperature":1,"seed":7,` + schema, `"temperature":0,"n":2,"return_token_ids":true`, `"temperature":0.5,"seed":8,"min_tokens":9`,
	} {
		for _, stream := range []string{"", `,"stream":true,"stream_options":{"include_usage":true}`} {
			chat := `{"messages":[{"role":"user","content":"What is light?"}],"max_tokens":24,"logprobs":true,"top_logprobs":3,` + options + stream
			text := `{"prompt":"What is light? What is","max_tokens":24,"logprobs":3,` + options + stream
			wantChat, wantText := off.draftless("/v1/chat/completions", chat+"}"), off.draftless("/v1/completions", text+"}")
			content, err := json.Marshal(off.ask("/v1/chat/completions", strings.TrimSuffix(chat, stream)+"}").Choices[0].Message.Content)
			off.ok(err)
			for n := range 2 {
				more := fmt.Sprintf(`,"coppice":{"speculate":%s}`, []string{`"auto"`, "7", "1024", "1"}[(i+n)%4])
				if got := on.draftless("/v1/completions", text+more+"}"); got != wantText {
					t.Errorf("%s%s:\n%s\nwant\n%s", text, more, got, wantText)
				}
				more += `,"prediction":{"type":"content","content":` + string(content) + `}`
				if got := on.draftless("/v1/chat/completions", chat+more+"}"); got != wantChat {
					t.Errorf("%s%s:\n%s\nwant\n%s", chat, more, got, wantChat)
				}
			}
		}
	}
	on.quiet()
	m := on.stats().Scheduler
	if drafted, right := m.Drafts.Sum(); right < 200 || m.Drafts.Accepted[scheduler.DraftPrediction] == 0 {
		t.Errorf("%d guesses, %d right, %v by source: too few to prove something", drafted, right, m.Drafts.Accepted)
	} else {
		t.Logf("%d guesses, %v right by source", drafted, m.Drafts.Accepted)
	}
}
