package toolcall

import (
	"encoding/json"
	"strings"
)

// MaxCalls is the most calls in an output that requests offer. A model that writes more repeats itself.
const MaxCalls = 8

// Tool describes a tool that the model may call. Parameters is the JSON schema of its arguments.
type Tool struct {
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
}

// Offer holds the calls of an output to a form and to the schemas of tools. It is the text of a format in
// the language jsonschema.ToolCalls. If Answer is set, it is a JSON schema, and the output may instead be an answer that matches this schema.
type Offer struct {
	Auto   bool            `json:"auto,omitempty"` // first, see Open
	Form   string          `json:"form,omitempty"` // "": hermes
	Tools  []Tool          `json:"tools"`
	Most   int             `json:"most"` // calls
	Answer json.RawMessage `json:"answer,omitempty"`
}

// String returns the JSON of the offer. It panics if a schema is no JSON.
func (o Offer) String() string {
	if o.Form == Hermes.Name {
		o.Form = ""
	}
	b, err := json.Marshal(o)
	if err != nil {
		panic("toolcall: schemas of a sound text can't be written: " + err.Error())
	}
	return string(b)
}

// Open returns an offer for a prompt that ends with the opening tag of the model's reasoning, in which calls do not
// count. Without Auto it returns the offer itself.
func Open(offer string) string {
	const auto = `{"auto":true,`
	if rest, ok := strings.CutPrefix(offer, auto); ok {
		return auto + `"opened":true,` + rest
	}
	return offer
}
