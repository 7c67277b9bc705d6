package openai

import _ "embed"

// Document is the OpenAPI 3.1 description of all the server's routes, as JSON. It is
// not to be changed.
//
//go:embed openapi.json
var Document []byte
