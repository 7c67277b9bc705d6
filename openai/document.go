package openai

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

// Document is the OpenAPI 3.1 description of all the server's routes, as JSON, with the
// limits of this package. It is not to be changed. [Facts.Document] says what one server
// does.
//
//go:embed openapi.json
var Document []byte

// Facts are what the description of a server depends on.
type Facts struct {
	Version   string
	Models    []string // names, the default first
	Keyed     bool     // it asks for keys
	Choices   int      // outputs of one request
	Vocab     int      // tokens
	BodyBytes int      // of one body
	// Sampling are the parameters of requests that do not say how to sample, by field.
	Sampling map[string]float32
}

// Document describes a server: Document with its own limits and defaults, and without keys
// where it asks for none.
func (f Facts) Document() []byte {
	var doc map[string]any
	if err := json.Unmarshal(Document, &doc); err != nil {
		panic("openai: openapi.json: " + err.Error())
	}
	doc["info"].(map[string]any)["version"] = f.Version
	if !f.Keyed {
		doc["security"] = []any{}
	}
	parts := doc["components"].(map[string]any)
	large := parts["responses"].(map[string]any)["TooLarge"].(map[string]any)
	large["description"] = fmt.Sprintf("The body has over %d bytes, or what /tokenize and /detokenize take, which is less.", f.BodyBytes)
	schemas := parts["schemas"].(map[string]any)
	f.narrow(schemas)
	for _, name := range []string{"CompletionRequest", "ChatRequest"} {
		fields := schemas[name].(map[string]any)["properties"].(map[string]any)
		fields["n"].(map[string]any)["maximum"] = min(f.Choices, maxN)
		for field, v := range f.Sampling {
			fields[field].(map[string]any)["default"] = v
		}
	}
	out, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		panic("openai: openapi.json: " + err.Error())
	}
	return out
}

// narrow gives all fields of tokens and models in v the server's limits.
func (f *Facts) narrow(v any) {
	switch v := v.(type) {
	case map[string]any:
		if most, ok := v["maximum"].(float64); ok && most == 1<<32-1 { // ids of tokens alone
			v["maximum"] = f.Vocab - 1
		}
		if fields, ok := v["properties"].(map[string]any); ok && len(f.Models) > 0 {
			if model, ok := fields["model"].(map[string]any); ok && model["description"] != nil {
				model["description"] = fmt.Sprintf("%s. Default: %s.", strings.Join(f.Models, " or "), f.Models[0])
			}
		}
		for _, e := range v {
			f.narrow(e)
		}
	case []any:
		for _, e := range v {
			f.narrow(e)
		}
	}
}
