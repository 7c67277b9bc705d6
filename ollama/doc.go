// Package ollama owns the form of Ollama's API on the wire: its requests for text, mapped to turns of a
// conversation, and its answers, events, errors and descriptions of models. It never runs a request, and
// serves no HTTP.
//
//	c, err := ollama.DecodeChat(body, ollama.Options{})   // a *conversation.Error names the faulty field
//	…                                                     // the server renders and runs c.Turn
//	wire := ollama.NewWire(ollama.ChatAnswer, c.Model, time.Now)
//	dst = ollama.AppendError(dst, err)                    // {"error": "…"}
//
// A request that a server would refuse can still be routed: [Peek] reads what a proxy needs, and records
// faults of the prompt as a doubt.
//
// Source: the package api and the API page of github.com/ollama/ollama.
package ollama
