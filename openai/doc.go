// Package openai owns the types on the wire of OpenAI's HTTP interface, as this server
// extends it: requests and their one parser, errors, models, usage, chunks of streams as
// clients read them, and the document that describes all of it. It never serves HTTP and
// knows no node: package server makes requests of a node from what is read here, and
// internal/server/answer makes answers.
//
// Requests are read strictly, for a field that is silently passed over gives an
// answer to another question: what is unknown, has the wrong type or is out of range
// is an [Error] that names the field; what the interface has and this server lacks is
// refused by name; null is the same as nothing; of two fields with one name the last
// counts. Fields of vLLM's and SGLang's extensions are taken under their names
// there, and with coppice's own under the key "coppice".
//
//	c, err := openai.DecodeCompletion(body, openai.Options{})
//	if err != nil {
//		return err // an *openai.Error
//	}
//	fmt.Println(c.Model, c.MaxTokens, c.Prompts[0].Text)
//
// A proxy reads what it routes by, with the same functions in one pass over the body and
// leniently: see [Peeked].
//
// Values are not safe for concurrent use. Decoded ones are not changed after they
// were made.
//
// Source of the shapes: OpenAI's API reference (platform.openai.com/docs/api-reference),
// and vllm/entrypoints/openai/protocol.py of vLLM for the extensions.
package openai
