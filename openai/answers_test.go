package openai

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/kv"
)

// TestAnswersFitTheDocument: the answers in package answer's tests match the document's schemas.
func TestAnswersFitTheDocument(t *testing.T) {
	doc := readDocument(t)
	n := 0
	datadriven.RunTest(t, "../server/internal/answer/testdata/answers", func(t *testing.T, d *datadriven.TestData) string {
		schema := "Completion"
		if d.Cmd == "chat" {
			schema = "ChatCompletion"
		}
		for _, line := range strings.Split(strings.TrimSuffix(d.Expected, "\n"), "\n") {
			data, event := strings.CutPrefix(line, "data: ")
			kind := schema
			switch {
			case data == "[DONE]":
				continue
			case strings.HasPrefix(data, `{"error":`):
				kind = "Error"
			case event:
				kind += "Chunk"
			}
			n++
			if err := doc.checkJSON(kind, data); err != nil {
				t.Errorf("%s: %v: %s", d.Pos, err, data)
			}
		}
		return d.Expected
	})
	if n < 100 {
		t.Errorf("%d answers, want 100 or more", n)
	}
}

func TestModels(t *testing.T) {
	doc := readDocument(t)
	m := Model{ID: "a \"b\"", Created: 5, OwnedBy: "me", MaxModelLen: 4096}
	const model = `{"id":"a \"b\"","object":"model","created":5,"owned_by":"me","max_model_len":4096}`
	for _, tc := range []struct{ schema, got, want string }{
		{"Model", string(AppendModel(nil, m)), model},
		{"Models", string(AppendModels(nil, []Model{m, m})), `{"object":"list","data":[` + model + "," + model + "]}"},
		{"Models", string(AppendModels(nil, nil)), `{"object":"list","data":[]}`},
		{"Tokens", `{"count":2,"max_model_len":9,"tokens":[1496,5],"token_strs":["<|begin_of_text|>","&"]}`, ""}, // from the tests of package answer
		{"Tokens", `{"count":0,"max_model_len":9,"tokens":[],"token_strs":null}`, ""},
		{"Text", `{"prompt":"a\n"}`, ""},
	} {
		if tc.want != "" && tc.got != tc.want {
			t.Errorf("%s, want %s", tc.got, tc.want)
		}
		if err := doc.checkJSON(tc.schema, tc.got); err != nil {
			t.Error(err)
		}
	}
	var back Models
	m.Created, m.OwnedBy = 0, ""
	if err := json.Unmarshal([]byte(`{"data":[{"id":"a \"b\"","created":1.5,"owned_by":7,"max_model_len":4096,"parent":null}]}`), &back); err != nil || len(back.Data) != 1 || back.Data[0] != m {
		t.Errorf("%+v is read as %+v, %v", m, back, err)
	}
}

func TestAppendError(t *testing.T) {
	doc := readDocument(t)
	own := conversation.NewError(401, "invalid_api_key", "who are you?")
	if got := string(AppendError(nil, own)); got != `{"error":{"message":"who are you?","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}` {
		t.Error(got)
	}
	for _, e := range []*conversation.Error{own, conversation.ModelNotFound("x"), conversation.Invalid("a[1]", "invalid_value", "%q", "b\n")} {
		body := string(AppendError(nil, e))
		if err := doc.checkJSON("Error", body); err != nil {
			t.Error(err)
		}
		var back struct {
			Error struct{ Message, Type, Param, Code string }
		}
		if err := json.Unmarshal([]byte(body), &back); err != nil || back.Error.Message != e.Message || back.Error.Param != e.Param || back.Error.Code != e.Code {
			t.Errorf("%s gives back %+v, %v", body, back, err)
		}
	}
}

// TestUsageByTier: the extension appears only if tokens came from a tier below the device.
func TestUsageByTier(t *testing.T) {
	u := Usage{PromptTokens: 20, CachedTokens: 9, CompletionTokens: 1}
	u.CachedByTier[kv.TierDevice] = 9
	if got := string(u.Append(nil)); strings.Contains(got, "tier") {
		t.Errorf("all on the device: %s", got)
	}
	u.CachedByTier = [kv.Tiers]int{kv.TierDevice: 1, kv.TierDisk: 8}
	if got, want := string(u.Append(nil)), `"cached_tokens":9,"cached_tokens_by_tier":{"device":1,"disk":8},"audio_tokens":0}`; !strings.Contains(got, want) {
		t.Errorf("%s, want %s in it", got, want)
	}
}

// TestUsageRead covers the usage of several servers, and its absence.
func TestUsageRead(t *testing.T) {
	for text, want := range map[string]Usage{
		`{"prompt_tokens":5,"completion_tokens":2}`:                                                   {PromptTokens: 5, CompletionTokens: 2, CachedTokens: -1},
		`{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":null}`:                      {PromptTokens: 5, CompletionTokens: 2, CachedTokens: -1},
		`{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":null}}`:                          {PromptTokens: 5, CachedTokens: -1},
		`{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0,"x":1}}`: {PromptTokens: 5, CompletionTokens: 2},
		string(Usage{PromptTokens: 9, CachedTokens: 4, CompletionTokens: 1}.Append(nil)):              {PromptTokens: 9, CachedTokens: 4, CompletionTokens: 1},
	} {
		var c Chunk
		if err := c.Read([]byte(`{"usage":` + text + `}`)); err != nil || c.Usage == nil || *c.Usage != want {
			t.Errorf("%s is read %+v, %v, want %+v", text, c.Usage, err, want)
		}
	}
}
