package gateway

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"sync"

	"github.com/coppice-llm/coppice/anthropic"
	"github.com/coppice-llm/coppice/ollama"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/openai/responses"
)

// fleetPaths is the OpenAPI description of the paths that only a router has, with its info
// section.
//
//go:embed openapi.json
var fleetPaths []byte

// workersPaths are the paths of a worker's description that the router has too.
var workersPaths = []string{
	"/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/responses", "/v1/responses/{id}", "/v1/responses/{id}/input_items",
	"/v1/responses/{id}/cancel", "/api/chat", "/api/generate", "/api/show", "/api/embed", "/api/embeddings", "/api/tags", "/api/ps", "/api/version", "/api/pull",
	"/v1/cache/park", "/v1/cache/release", "/v1/cache/expect", "/v1/embeddings", "/tokenize", "/detokenize", "/version", "/v1/models", "/v1/models/{id}", "/health", "/ready",
	"/metrics",
	"/openapi.json",
}

// openAPIDocument is the OpenAPI description of the router. Forwarded paths are described as in
// the worker's document.
var openAPIDocument = sync.OnceValue(func() []byte {
	var worker, own struct {
		OpenAPI    string                     `json:"openapi"`
		Info       json.RawMessage            `json:"info"`
		Security   json.RawMessage            `json:"security,omitempty"`
		Paths      map[string]json.RawMessage `json:"paths"`
		Components struct {
			SecuritySchemes json.RawMessage            `json:"securitySchemes,omitempty"`
			Schemas         map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	for text, doc := range map[*[]byte]any{&openai.Document: &worker, &anthropic.Document: &worker, &responses.Document: &worker, &ollama.Document: &worker, &fleetPaths: &own} { // a second text adds to the first
		if err := json.Unmarshal(*text, doc); err != nil {
			panic(fmt.Sprintf("gateway: openapi.json: %v", err)) // the file is embedded
		}
	}
	for _, path := range workersPaths {
		own.Paths[path] = worker.Paths[path]
	}
	for _, path := range passedPaths { // those that only other workers have are described as one of them is
		if own.Paths[path] == nil {
			own.Paths[path] = bytes.ReplaceAll(own.Paths["/score"], []byte("passed on: /score"), []byte("passed on: "+path))
		}
	}
	own.OpenAPI, own.Security, own.Components.SecuritySchemes = worker.OpenAPI, worker.Security, worker.Components.SecuritySchemes
	maps.Copy(own.Components.Schemas, worker.Components.Schemas)
	text, err := json.MarshalIndent(&own, "", "  ")
	if err != nil {
		panic(err) // it was just decoded
	}
	return append(text, '\n')
})

func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, openAPIDocument())
}
