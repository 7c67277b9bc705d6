package anthropic

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
)

// TestDocument: the document has the fields that are read, those of each kind of block, and no others.
func TestDocument(t *testing.T) {
	type schema struct {
		Properties map[string]json.RawMessage
		Required   []string
	}
	var doc struct {
		Components struct{ Schemas map[string]schema }
	}
	if err := json.Unmarshal(Document, &doc); err != nil {
		t.Fatal(err)
	}
	schemas := doc.Components.Schemas
	blocks := []string{"type", "cache_control"}
	for _, names := range blockFields {
		blocks = append(blocks, names...)
	}
	slices.Sort(blocks)
	for name, want := range map[string][]string{
		"MessagesRequest": slices.Sorted(maps.Keys(fields)), "CountTokensRequest": slices.Sorted(maps.Keys(fields)), "MessagesBlock": slices.Compact(blocks),
	} {
		if got := slices.Sorted(maps.Keys(schemas[name].Properties)); !slices.Equal(got, want) {
			t.Errorf("%s has %q, and read are %q", name, got, want)
		}
	}
	var a, u map[string]json.RawMessage
	out := covers().Whole(nil, &answerOf)
	if err := json.Unmarshal(out, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(a["usage"], &u); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]map[string]json.RawMessage{"MessagesAnswer": a, "MessagesUsage": u} {
		if want := slices.Sorted(maps.Keys(schemas[name].Properties)); !slices.Equal(slices.Sorted(maps.Keys(got)), want) {
			t.Errorf("an answer has %s, and %s is %q", out, name, want)
		}
	}
}
