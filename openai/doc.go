// Package openai owns the wire types of OpenAI's HTTP API, with this server's extensions:
// requests and their only parser, errors, models, usage, chunks of streams for clients, and the
// OpenAPI document. It never serves HTTP and knows no node: package server converts decoded
// requests for a node, and server/internal/answer writes answers.
//
// Requests are read strictly, because ignoring a field silently gives an answer to a different
// request. A field that is unknown, has the wrong type or is out of range is an [Error] that
// names it. A field of the API that this server does not support is refused by name. null counts
// as absent. Of two fields with the same name the last counts. Extensions of vLLM and SGLang are
// accepted under their names there, and together with Coppice's own under the key "coppice".
//
//	c, err := openai.DecodeCompletion(body, openai.Options{})
//	if err != nil {
//		return err // an *openai.Error
//	}
//	fmt.Println(c.Model, c.MaxTokens, c.Prompts[0].Text)
//
// A proxy reads the fields that it routes by with the same functions, leniently and in one pass
// over the body: see [Peeked].
//
// Values are not safe for concurrent use. Decoded values do not change afterwards.
//
// Source of the shapes: OpenAI's API reference (platform.openai.com/docs/api-reference), and
// vllm/entrypoints/openai/protocol.py of vLLM for the extensions.
package openai
