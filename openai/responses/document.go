package responses

import _ "embed"

// Document is the part of the server's OpenAPI document that describes this API: paths and schemas. Do not change it. It refers
// to schemas and responses of openai.Document.
//
//go:embed openapi.json
var Document []byte
