package anthropic

import _ "embed"

// Document is the part of the server's OpenAPI document that describes this API: paths, schemas and responses.
// Do not change it. It refers to the schema Coppice of openai.Document.
//
//go:embed openapi.json
var Document []byte
