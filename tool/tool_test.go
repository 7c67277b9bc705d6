package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/grammar/jsonschema"
	"github.com/coppice-llm/coppice/grammar/toolcall"
	"github.com/coppice-llm/coppice/tokenizer/chat"
	"github.com/coppice-llm/coppice/tool"
)

type where struct {
	City  string   `json:"city" jsonschema:"name of the city"`
	Days  int      `json:"days,omitempty"`
	Units []string `json:"units,omitempty"`
	In    *struct {
		Country string `json:"country"`
	} `json:"in,omitempty"`
}

// TestNew: the schema of a struct is one that the grammar takes; arguments become the struct, results text; what is no tool says why.
func TestNew(t *testing.T) {
	weather := tool.New("weather", "The weather.", func(_ context.Context, in where) (map[string]int, error) {
		if in.City == "" {
			return nil, errors.New("no city")
		}
		return map[string]int{in.City: in.Days}, nil
	})
	name := tool.New("name", "", func(_ context.Context, _ struct{}) (string, error) { return "a <name>", nil })
	if err := errors.Join(weather.Validate(), name.Validate()); err != nil {
		t.Fatal(err)
	}
	schema := string(weather.Parameters)
	for _, want := range []string{`"city":{"type":"string","description":"name of the city"}`, `"days":{"type":"integer"}`, `"required":["city"]`, `"additionalProperties":false`} {
		if !strings.Contains(schema, want) {
			t.Errorf("%s lacks %s", schema, want)
		}
	}
	for _, x := range []tool.Tool{weather, name} {
		if _, err := jsonschema.Rules(x.Parameters, jsonschema.Config{}); err != nil {
			t.Errorf("the grammar refuses %s: %v", x.Parameters, err)
		}
	}
	for arguments, want := range map[string]string{
		`{"city":"Rome","days":3}`: `{"Rome":3} <nil>`, `{"city":"Rome"}`: `{"Rome":0} <nil>`, `{}`: ` no city`,
		`{"city":1}`: ` tool: arguments of weather: json: cannot unmarshal number into Go struct field where.city of type string`,
	} {
		if text, err := weather.Do(context.Background(), json.RawMessage(arguments)); fmt.Sprint(text, " ", err) != want {
			t.Errorf("%s: %q, %v, want %s", arguments, text, err, want)
		}
	}
	if text, err := name.Do(context.Background(), json.RawMessage(`{}`)); text != "a <name>" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	number := tool.New("number", "", func(context.Context, int) (string, error) { return "", nil })
	pipe := tool.New("pipe", "", func(context.Context, struct{ C chan int }) (string, error) { return "", nil })
	for _, x := range []tool.Tool{number, pipe, {}, {Name: "a"}, {Name: "a", Do: name.Do, Parameters: json.RawMessage("{")}} {
		if err := x.Validate(); err == nil || !strings.HasPrefix(err.Error(), "tool: ") {
			t.Errorf("%+v: %v", x, err)
		}
	}
	if all := tool.Declare([]tool.Tool{name}); len(all) != 1 || string(all[0]) != `{"type":"function","function":{"name":"name","parameters":`+string(name.Parameters)+`}}` || tool.Declare(nil) != nil {
		t.Errorf("%s", all)
	}
}

// TestCalling: without a template and a tokenizer calls have the form of Hermes; Read is the inverse of what Format admits.
func TestCalling(t *testing.T) {
	c := tool.CallingOf(nil, nil, nil, chat.AutoTools)
	if c.Form != toolcall.Hermes || c.Why != "" || c.Thinks || c.Opened("<think>") {
		t.Errorf("%+v", c)
	}
	clock := tool.New("clock", "", func(context.Context, struct{}) (string, error) { return "", nil })
	format := c.Format([]tool.Tool{clock}, false, true)
	if !strings.HasPrefix(format, `{"auto":true,"opened":true,`) || !strings.Contains(format, `"name":"clock"`) || strings.Contains(c.Format([]tool.Tool{clock}, true, false), "auto") {
		t.Errorf("%s", format)
	}
	const call = "<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>"
	r := c.Read("It is\n"+call+"\n"+call, []tool.Tool{clock}, tool.Reading{First: 7})
	if strings.TrimSpace(r.Text) != "It is" || len(r.Calls) != 2 || r.Calls[0].ID != "call00007" || r.Calls[1].ID != "call00008" || r.Calls[1].Name != "clock" || string(r.Calls[1].Arguments) != "{}" {
		t.Errorf("%+v", r)
	}
}
