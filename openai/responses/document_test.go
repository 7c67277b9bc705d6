package responses

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsonbody"
	"github.com/coppice-llm/coppice/openai"
)

// TestDocument: the document has the fields that are read and those of a response, and no others.
func TestDocument(t *testing.T) {
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(Document, &doc); err != nil {
		t.Fatal(err)
	}
	schemas := doc.Components.Schemas
	described := schemas["ResponseRequest"].Properties
	for name := range fields {
		if described[name] == nil {
			t.Errorf("the field %s is read, and not in the document", name)
		}
	}
	null := jsonbody.Value{Raw: []byte("null")}
	for name := range described {
		_, no := refused[name]
		d, p := jsonbody.Decoder{Lenient: true}, conversation.Params{}
		if fields[name] == nil && !no && !openai.Extension(&d, jsonbody.Field{Name: []byte(name), Value: null}, &p) {
			t.Errorf("the field %s is in the document, and not read", name)
		}
	}
	_, whole, _ := spoke(t, `{"input":"x"}`, "text", "stop")
	var response map[string]json.RawMessage
	if err := json.Unmarshal([]byte(whole), &response); err != nil {
		t.Fatal(err)
	}
	got, want := slices.Sorted(maps.Keys(response)), slices.Sorted(maps.Keys(schemas["Response"].Properties))
	if !slices.Equal(got, want) {
		t.Errorf("a response has %q, and the document %q", got, want)
	}
}
