package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// document validates JSON against the schemas of openapi.json. It supports the keywords of JSON
// Schema 2020-12 used there; an unknown keyword is a fault.
type document struct {
	schemas map[string]any
	request bool // null counts as absent
}

func readDocument(t testing.TB) *document {
	t.Helper()
	var doc struct {
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(Document, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Components.Schemas) == 0 {
		t.Fatal("the document has no schemas")
	}
	return &document{schemas: doc.Components.Schemas}
}

// checkJSON returns the first violation of the named schema in text. Of members with the same
// name the last counts.
func (d *document) checkJSON(schema, text string) error {
	s, ok := d.schemas[schema]
	if !ok {
		return fmt.Errorf("the document has no schema %s", schema)
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("more than one value")
	}
	return d.check(s, v, schema)
}

func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	case json.Number:
		if f, err := v.Float64(); err == nil && f == math.Trunc(f) {
			return "integer"
		}
	}
	return "number"
}

func number(v any) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return math.NaN()
		}
		return f
	}
	return math.NaN()
}

func equal(a, b any) bool {
	if n := number(a); !math.IsNaN(n) {
		return n == number(b)
	}
	return reflect.DeepEqual(a, b)
}

func (d *document) check(schema, v any, at string) error {
	s := schema.(map[string]any)
	kind := kindOf(v)
	bad := func(key string) error { return fmt.Errorf("%s is %.60v, want %s %v", at, v, key, s[key]) }
	for _, key := range slices.Sorted(maps.Keys(s)) {
		want := s[key]
		ok := true
		switch key {
		case "description", "default", "required", "additionalProperties":
		case "$ref":
			name := strings.TrimPrefix(want.(string), "#/components/schemas/")
			if d.schemas[name] == nil {
				return fmt.Errorf("%s: no schema %s", at, name)
			}
			if err := d.check(d.schemas[name], v, at); err != nil {
				return err
			}
		case "anyOf":
			ok = slices.ContainsFunc(want.([]any), func(one any) bool { return d.check(one, v, at) == nil })
		case "oneOf":
			n := 0
			for _, one := range want.([]any) {
				if d.check(one, v, at) == nil {
					n++
				}
			}
			ok = n == 1
		case "type":
			kinds, several := want.([]any)
			if !several {
				kinds = []any{want}
			}
			ok = slices.Contains(kinds, any(kind)) || kind == "integer" && slices.Contains(kinds, any("number"))
		case "enum":
			ok = slices.ContainsFunc(want.([]any), func(one any) bool { return equal(one, v) })
		case "const":
			ok = equal(want, v)
		case "minimum":
			ok = kind != "integer" && kind != "number" || number(v) >= number(want)
		case "exclusiveMinimum":
			ok = kind != "integer" && kind != "number" || number(v) > number(want)
		case "maximum":
			ok = kind != "integer" && kind != "number" || number(v) <= number(want)
		case "minLength", "maxLength":
			s, is := v.(string)
			n := utf8.RuneCountInString(s)
			ok = !is || key == "minLength" && n >= int(number(want)) || key == "maxLength" && n <= int(number(want))
		case "minItems", "maxItems":
			list, is := v.([]any)
			ok = !is || key == "minItems" && len(list) >= int(number(want)) || key == "maxItems" && len(list) <= int(number(want))
		case "items":
			list, _ := v.([]any)
			for i, e := range list {
				if err := d.check(want, e, fmt.Sprintf("%s[%d]", at, i)); err != nil {
					return err
				}
			}
		case "properties", "propertyNames", "maxProperties":
		default:
			return fmt.Errorf("%s: the test does not know the keyword %s", at, key)
		}
		if !ok {
			return bad(key)
		}
	}
	if object, is := v.(map[string]any); is {
		return d.checkObject(s, object, at)
	}
	return nil
}

func (d *document) checkObject(s, v map[string]any, at string) error {
	if d.request {
		v = maps.Clone(v)
		maps.DeleteFunc(v, func(_ string, member any) bool { return member == nil })
	}
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := v[name.(string)]; !ok {
			return fmt.Errorf("%s lacks %s", at, name)
		}
	}
	properties, _ := s["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(v)) {
		one, ok := properties[name]
		if _, passed := slices.BinarySearch(harmless, name); !ok && passed && d.request {
			continue // info.description lists them
		}
		if !ok {
			switch rest := s["additionalProperties"].(type) {
			case bool:
				if !rest {
					return fmt.Errorf("%s has the unknown member %s", at, name)
				}
				continue
			case nil:
				continue
			default:
				one = rest
			}
		}
		if names, is := s["propertyNames"].(map[string]any); is && !regexp.MustCompile(names["pattern"].(string)).MatchString(name) {
			return fmt.Errorf("%s has a member %s", at, name)
		}
		if err := d.check(one, v[name], at+"."+name); err != nil {
			return err
		}
	}
	return nil
}

// TestDocumentHasAllFields: the document has exactly the fields that are read.
func TestDocumentHasAllFields(t *testing.T) {
	doc := readDocument(t)
	for _, tc := range []struct {
		schema string
		tables []map[string]setter
	}{
		{"CompletionRequest", []map[string]setter{completionFields, shared, extensions, inert, top}},
		{"ChatRequest", []map[string]setter{chatFields, shared, extensions, inert, top}},
		{"Coppice", []map[string]setter{own, extensions, inert}},
	} {
		want := map[string]bool{}
		for _, table := range tc.tables {
			for name := range table {
				want[name] = true
			}
		}
		if tc.schema != "Coppice" {
			for name, no := range refused {
				want[name] = want[name] || no.unless != ""
			}
			maps.DeleteFunc(want, func(_ string, is bool) bool { return !is })
		}
		got := slices.Sorted(maps.Keys(doc.schemas[tc.schema].(map[string]any)["properties"].(map[string]any)))
		if w := slices.Sorted(maps.Keys(want)); !slices.Equal(got, w) {
			t.Errorf("%s has\n%q, read are\n%q", tc.schema, got, w)
		}
	}
}

// TestDocumentIsWhole: all references in the document resolve. Package server tests that it has
// all routes.
func TestDocumentIsWhole(t *testing.T) {
	var all struct {
		OpenAPI    string
		Components struct{ Responses map[string]any }
	}
	if err := json.Unmarshal(Document, &all); err != nil {
		t.Fatal(err)
	}
	if all.OpenAPI != "3.1.0" {
		t.Errorf("version %s", all.OpenAPI)
	}
	doc := readDocument(t)
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`"\$ref": "([^"]*)"`).FindAllSubmatch(Document, -1) {
		if answer, ok := bytes.CutPrefix(m[1], []byte("#/components/responses/")); ok {
			if all.Components.Responses[string(answer)] == nil {
				t.Errorf("no response %s", answer)
			}
			continue
		}
		name := string(bytes.TrimPrefix(m[1], []byte("#/components/schemas/")))
		if used[name] = true; doc.schemas[name] == nil {
			t.Errorf("no schema %s", m[1])
		}
	}
	for name := range doc.schemas {
		if !used[name] {
			t.Errorf("nothing refers to the schema %s", name)
		}
	}
}

// TestHarmless: the document lists the ignored fields, and they are sorted.
func TestHarmless(t *testing.T) {
	if !slices.IsSorted(harmless) {
		t.Errorf("the list is not sorted: %q", harmless)
	}
	if list := strings.Join(harmless, ", "); !strings.Contains(string(Document), list) {
		t.Errorf("the document does not list %s", list)
	}
	body := `{"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{}}],"cache_control":{"type":"ephemeral"}},{"role":"assistant","content":"b","provider_specific_fields":null},` +
		`{"role":"user","content":"c","cache_control":1}],"tools":[{"type":"function","function":{"name":"f"},"cache_control":{}}],"rid":"1","keep_alive":-1,"length_penalty":1.0,"stream_options":{"include_usage":true}}`
	c, err := DecodeChat([]byte(body), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"messages[].content[].cache_control", "messages[].cache_control", "tools[].cache_control", "rid", "keep_alive", "stream_options"}; !slices.Equal(c.Ignored, want) {
		t.Errorf("ignored %q, want %q", c.Ignored, want)
	}
	strange := `{"prompt":"x","what, is\nthis":1,"best_of":1,"use_beam_search":true}`
	if _, err := DecodeCompletion([]byte(strange), Options{}); err == nil || !strings.Contains(err.Error(), "what, is") {
		t.Errorf("an unknown field: %v", err)
	}
	if _, err := DecodeCompletion([]byte(strange), Options{UnknownFields: IgnoreUnknown}); err == nil || !strings.Contains(err.Error(), "use_beam_search") {
		t.Errorf("a field that changes the output: %v", err)
	}
	d, err := DecodeCompletion([]byte(strings.Replace(strange, "true", "false", 1)), Options{UnknownFields: IgnoreUnknown})
	if err != nil || !slices.Equal(d.Ignored, []string{"what??is?this"}) {
		t.Errorf("an unknown field that is passed over: %v, %v", d, err)
	}
}
