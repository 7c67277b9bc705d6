package ollama

import _ "embed"

// Document is the OpenAPI description of the routes of this API, a part of the server's: its paths, and the
// schemas and responses that they refer to. Do not change it.
//
//go:embed openapi.json
var Document []byte
