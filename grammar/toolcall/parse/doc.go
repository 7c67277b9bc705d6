// Package parse separates an output into text, reasoning and tool calls. It never writes an answer
// for a client.
//
//	form := parse.FormOf(rendered) // by the model's chat template, from a call of parse.ProbeName
//	p := parse.NewParser(parse.Options{Form: form, Tools: []string{"weather"}})
//	for piece := range pieces {
//		for _, e := range p.Next(piece, false) {
//			…
//		}
//	}
//	rest := p.Next("", true)
//
// One parser reads all forms, driven by a table of readings. A form without a mark, and Hermes' at
// the beginning of a line, is a call only if it names a tool of the request. What is no call
// is text, of which at most 64 bytes and a tool's name are held back. Text arrives in pieces of
// any size; the result is the same for all of them.
//
// Values are not safe for concurrent use.
package parse
