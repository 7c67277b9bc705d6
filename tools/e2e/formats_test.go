package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
)

// weather is the struct into which an answer is parsed.
type weather struct {
	City  string   `json:"city"`
	Kind  string   `json:"kind"`
	Cold  bool     `json:"cold"`
	Marks []string `json:"marks"`
	Wind  struct {
		From string `json:"from"`
	} `json:"wind"`
}

func object(properties map[string]any) map[string]any {
	required := []string{}
	for name := range properties {
		required = append(required, name)
	}
	slices.Sort(required)
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

var weatherSchema = object(map[string]any{
	"city":  map[string]any{"type": "string", "maxLength": 12},
	"kind":  map[string]any{"enum": []string{"sun", "rain", "snow"}},
	"cold":  map[string]any{"type": "boolean"},
	"marks": map[string]any{"type": "array", "items": map[string]any{"enum": []string{"a", "b"}}, "minItems": 1, "maxItems": 3},
	"wind":  object(map[string]any{"from": map[string]any{"enum": []string{"north", "south"}}}),
})

// TestJSONSchema checks that the answers of a model with random weights can be parsed into the struct.
func TestJSONSchema(t *testing.T) {
	p := serve(t)
	req := talk(400, openai.UserMessage("How is the weather?"))
	req.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
		Name: "weather", Description: openai.String("The weather."), Strict: openai.Bool(true), Schema: weatherSchema,
	}}
	seen := map[string]bool{}
	for seed := range int64(6) {
		req.Seed = openai.Int(seed)
		c := p.chat(req).Choices[0]
		var w weather
		if err := json.Unmarshal([]byte(c.Message.Content), &w); err != nil || c.FinishReason != "stop" {
			t.Fatalf("seed %d: %q by %s: %v", seed, c.Message.Content, c.FinishReason, err)
		}
		if !slices.Contains([]string{"sun", "rain", "snow"}, w.Kind) || len(w.Marks) < 1 || len(w.Marks) > 3 || len([]rune(w.City)) > 12 || w.Wind.From == "" {
			t.Errorf("seed %d: %+v", seed, w)
		}
		seen[c.Message.Content] = true
		if s, _ := p.chatStream(req); s.Choices[0].Message.Content != c.Message.Content {
			t.Errorf("seed %d: streamed %q, whole %q", seed, s.Choices[0].Message.Content, c.Message.Content)
		}
	}
	if len(seen) < 2 {
		t.Error("all seeds give the same: it is the schema that speaks, not the model")
	}
	p.quiet(p.client)
}

func TestJSONObject(t *testing.T) {
	p := serve(t)
	req := talk(120, openai.UserMessage("How is the weather?"))
	req.ResponseFormat.OfJSONObject = &shared.ResponseFormatJSONObjectParam{}
	whole := 0
	for seed := range int64(30) {
		req.Seed = openai.Int(seed)
		c := p.chat(req).Choices[0]
		var v map[string]any
		err := json.Unmarshal([]byte(c.Message.Content), &v)
		switch c.FinishReason {
		case "stop":
			whole++
			if err != nil {
				t.Errorf("seed %d: %q is no object: %v", seed, c.Message.Content, err)
			}
		case "length": // cut off
			if err == nil {
				t.Errorf("seed %d: %q was complete, and did not end", seed, c.Message.Content)
			}
		default:
			t.Errorf("seed %d ended by %q", seed, c.FinishReason)
		}
	}
	if whole < 3 {
		t.Errorf("%d of 30 answers were complete", whole)
	}
}

// TestRegex tests the extension for regular expressions, in the three forms of a request.
func TestRegex(t *testing.T) {
	p := serve(t)
	date := `20[0-9]{2}-(0[1-9]|1[0-2])-[0-3][0-9]`
	for name, opt := range map[string]option.RequestOption{
		"regex":              option.WithJSONSet("regex", date),
		"coppice":            option.WithJSONSet("coppice", map[string]any{"regex": date}),
		"structured_outputs": option.WithJSONSet("structured_outputs", map[string]any{"regex": date}),
	} {
		got := p.complete(text("The date is ", 40), opt).Choices[0]
		if !regexp.MustCompile("^"+date+"$").MatchString(got.Text) || got.FinishReason != "stop" {
			t.Errorf("%s: %q by %s", name, got.Text, got.FinishReason)
		}
	}
	got := p.complete(text("It is ", 40), option.WithJSONSet("guided_choice", []string{"sunny (mostly)", "rainy"})).Choices[0]
	if got.Text != "sunny (mostly)" && got.Text != "rainy" {
		t.Errorf("guided_choice gave %q", got.Text)
	}
}

// TestBadFormats checks that formats which can't be enforced are refused with the field that asks for
// them.
func TestBadFormats(t *testing.T) {
	p := serve(t)
	for name, c := range map[string]struct {
		format any
		param  string
		code   string
	}{
		"kind":        {map[string]any{"type": "xml"}, "response_format.type", "invalid_value"},
		"no schema":   {map[string]any{"type": "json_schema"}, "response_format.json_schema", "missing_required_parameter"},
		"not one":     {map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "a", "schema": map[string]any{"type": "objekt"}}}, "response_format", "invalid_value"},
		"unsupported": {map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "a", "schema": map[string]any{"type": "array", "uniqueItems": true}}}, "response_format", "invalid_value"},
		"ref":         {map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "a", "schema": map[string]any{"$ref": "https://example.com/a"}}}, "response_format", "invalid_value"},
	} {
		_, err := p.client.Chat.Completions.New(within(t), talk(4, openai.UserMessage("light?")), option.WithJSONSet("response_format", c.format))
		if e := refused(t, name, err, 400, c.param, c.code); e != nil {
			t.Log(fmt.Sprint(name, ": ", e.Message))
		}
	}
	_, err := p.client.Completions.New(within(t), text("light", 4), option.WithJSONSet("regex", "("))
	refused(t, "regex", err, 400, "regex", "invalid_value")
	p.quiet(p.client)
}
