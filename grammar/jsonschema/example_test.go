package jsonschema_test

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/grammar/jsonschema"
)

func ExampleRules() {
	schema := `{
		"type": "object",
		"properties": {"name": {"type": "string"}, "tags": {"type": "array", "uniqueItems": true}},
		"required": ["name"]
	}`
	_, err := jsonschema.Rules([]byte(schema), jsonschema.Config{})
	fmt.Println(err)
	fmt.Println(errors.Is(err, jsonschema.ErrUnsupported))
	// Output:
	// jsonschema: not supported: #/properties/tags, uniqueItems: it has no grammar here
	// true
}
