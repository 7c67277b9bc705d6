package openai

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

// Document is the OpenAPI 3.1 description of all the server's routes but those of other APIs, as JSON, with
// the limits of this package. Do not change it. [Facts.Document] describes one particular server.
//
//go:embed openapi.json
var Document []byte

// Facts are the properties of a server that its description depends on.
type Facts struct {
	Version   string
	Models    []string // names, the default first
	Keyed     bool     // it requires API keys
	Choices   int      // most outputs of one request
	Vocab     int      // size of the vocabulary
	BodyBytes int      // limit of a body
	// Sampling holds the defaults of sampling parameters, by field name.
	Sampling map[string]float32
	// Wires are the documents of other APIs that the server has: paths, schemas and responses.
	Wires [][]byte
}

// Document returns the description of a server: Document with its limits and defaults, and
// without keys if it requires none.
func (f Facts) Document() []byte {
	var doc map[string]any
	if err := json.Unmarshal(Document, &doc); err != nil {
		panic("openai: openapi.json: " + err.Error())
	}
	for _, text := range f.Wires {
		var wire map[string]any
		if err := json.Unmarshal(text, &wire); err != nil {
			panic("openai: a document of another API: " + err.Error())
		}
		join(doc, wire)
	}
	doc["info"].(map[string]any)["version"] = f.Version
	if !f.Keyed {
		doc["security"] = []any{}
	}
	parts := doc["components"].(map[string]any)
	large := parts["responses"].(map[string]any)["TooLarge"].(map[string]any)
	large["description"] = fmt.Sprintf("The body has over %d bytes, or over the lower limit of /tokenize and /detokenize.", f.BodyBytes)
	schemas := parts["schemas"].(map[string]any)
	f.narrow(schemas)
	for _, name := range []string{"CompletionRequest", "ChatRequest"} {
		fields := schemas[name].(map[string]any)["properties"].(map[string]any)
		for _, field := range []string{"n", "best_of"} {
			if v, ok := fields[field].(map[string]any); ok {
				v["maximum"] = min(f.Choices, maxN)
			}
		}
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

// join adds to doc the members of more that it lacks, also within objects that both have.
func join(doc, more map[string]any) {
	for name, v := range more {
		inner, both := doc[name].(map[string]any)
		if with, ok := v.(map[string]any); ok && both {
			join(inner, with)
		} else if _, has := doc[name]; !has {
			doc[name] = v
		}
	}
}

// narrow replaces the limits of token ids and the descriptions of models in v by the server's.
func (f *Facts) narrow(v any) {
	switch v := v.(type) {
	case map[string]any:
		if most, ok := v["maximum"].(float64); ok && most == 1<<32-1 { // only token ids have this limit
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
