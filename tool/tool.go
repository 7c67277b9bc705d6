package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
)

// Tool is a function that a model may call. New makes one of a Go function; a Tool made by hand needs all
// fields but Description.
type Tool struct {
	Name        string
	Description string
	// Parameters is the JSON schema of the arguments, that of an object.
	Parameters json.RawMessage
	// Do calls the function with its arguments, a JSON object, and returns what the model is told.
	Do func(ctx context.Context, arguments json.RawMessage) (string, error)

	err error // of New
}

// New makes a tool of the function f. The fields of the struct A are the arguments: they are named
// by their json tags, described by their jsonschema tags, and required unless their json tag says
// omitempty or omitzero. A result of type string is given to the model as it is, any other as JSON. If A is
// no struct, or can't be described, Validate of the result returns the reason.
func New[A, R any](name, description string, f func(ctx context.Context, arguments A) (R, error)) Tool {
	t := Tool{Name: name, Description: description}
	schema, err := jsonschema.For[A](nil)
	if err == nil && schema.Type != "object" {
		err = errors.New("the arguments are no struct")
	}
	if err == nil {
		t.Parameters, err = json.Marshal(schema)
	}
	if err != nil {
		t.err = fmt.Errorf("tool: %s: %w", name, err)
		return t
	}
	t.Do = func(ctx context.Context, raw json.RawMessage) (string, error) {
		var a A
		if err := json.Unmarshal(raw, &a); err != nil {
			return "", fmt.Errorf("tool: arguments of %s: %w", name, err)
		}
		r, err := f(ctx, a)
		if err != nil {
			return "", err
		}
		if text, ok := any(r).(string); ok {
			return text, nil
		}
		text, err := json.Marshal(r)
		return string(text), err
	}
	return t
}

// Validate returns why the tool can't be used, or nil.
func (t *Tool) Validate() error {
	switch {
	case t.err != nil:
		return t.err
	case t.Name == "":
		return errors.New("tool: a tool has no name")
	case t.Do == nil || !json.Valid(t.Parameters):
		return fmt.Errorf("tool: %s has no function, or no schema of its arguments", t.Name)
	}
	return nil
}

// Declare returns the tools as a chat template takes them, for chat.Options.Tools; nil for none.
func Declare(tools []Tool) (all []json.RawMessage) {
	type function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	type declared struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	for i := range tools {
		t := &tools[i]
		text, err := json.Marshal(declared{"function", function{t.Name, t.Description, t.Parameters}})
		if err != nil {
			panic("tool: a schema that Validate took can't be written: " + err.Error())
		}
		all = append(all, text)
	}
	return all
}
