package jsonschema

import (
	"encoding/json"
	"fmt"

	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/grammar/toolcall"
)

// Language is a grammar.Language whose texts are JSON values.
type Language uint8

// The languages.
const (
	// AnyObject has the texts of JSON objects. Its formats need no text.
	AnyObject Language = iota
	// Schema has the texts of JSON values that a schema describes. A format's text is the schema, JSON itself.
	Schema
	// ToolCalls has calls of tools, as offered describes them, in JSON: {"form": NAME, "auto": true,
	// "opened": true, "tools": [{"name": …, "parameters": SCHEMA}], "most": 4, "answer": SCHEMA}. All but
	// tools and most are optional; form is one of toolcall.Forms. toolcall.Offer writes it.
	//
	// With auto, a tool whose schema can't be compiled takes any object: the model may answer without a call.
	ToolCalls
)

// Read implements grammar.Language.
func (l Language) Read(text string) (grammar.Described, error) {
	switch l {
	case Schema:
		return grammar.Described{Rules: func() (grammar.Rules, error) { return Rules([]byte(text), Config{}) }}, nil
	case ToolCalls:
		return describedCalls(text)
	case AnyObject:
		return grammar.Described{Rules: func() (grammar.Rules, error) { return Object(), nil }}, nil
	}
	return grammar.Described{}, fmt.Errorf("jsonschema: there is no language number %d", l)
}

// describedCalls reads a text of ToolCalls.
func describedCalls(text string) (d grammar.Described, err error) {
	calls, err := parseCalls(text)
	if err != nil {
		return d, err
	}
	d.Rules = func() (grammar.Rules, error) { return calls.Rules(Config{}) }
	if calls.Auto {
		loose, free := calls, calls.Free()
		loose.AnyArguments = true
		d.Free, d.Loose = &free, func() (grammar.Rules, error) { return loose.Rules(Config{}) }
	}
	return d, nil
}

// parseCalls parses a text of ToolCalls.
func parseCalls(text string) (offered, error) {
	var d struct {
		Form   string `json:"form"`
		Auto   bool   `json:"auto"`
		Opened bool   `json:"opened"`
		Tools  []struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"tools"`
		Most   int             `json:"most"`
		Answer json.RawMessage `json:"answer"`
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return offered{}, fmt.Errorf("the description of tool calls is malformed: %w", err)
	}
	calls := offered{Most: d.Most, Answer: d.Answer, Auto: d.Auto, Opened: d.Opened}
	if d.Form != "" {
		if calls.Form = toolcall.FormByName(d.Form); calls.Form == nil {
			return calls, fmt.Errorf("no form of tool calls is named %.100q; toolcall.Forms lists them", d.Form)
		}
	}
	for _, t := range d.Tools {
		calls.Tools = append(calls.Tools, offeredTool{Name: t.Name, Parameters: t.Parameters})
	}
	return calls, nil
}
