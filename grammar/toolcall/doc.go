// Package toolcall owns how models write: the forms of their tool calls, and the parser that
// separates an output into text, reasoning and calls. It never writes an answer for a client and
// never compiles a grammar: [jsonschema.Calls] makes one from a [Form].
//
//	form := toolcall.FormOf(rendered) // by the model's chat template, from a call of toolcall.ProbeName
//	p := toolcall.NewParser(toolcall.Options{Form: form, Tools: []string{"weather"}})
//	for piece := range pieces {
//		for _, e := range p.Next(piece, false) {
//			…
//		}
//	}
//	rest := p.Next("", true)
//
// One parser reads all forms, driven by the table of forms. A form without a mark, and Hermes' at
// the beginning of an output, is a call only if it names a tool of the request. What is no call
// is text, of which at most 64 bytes and a tool's name are held back. Text arrives in pieces of
// any size; the result is the same for all of them.
//
// Values are not safe for concurrent use, except forms, which are constant.
//
// [jsonschema.Calls]: github.com/coppice-llm/coppice/grammar/jsonschema.Calls
package toolcall
