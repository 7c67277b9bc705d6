// Package toolcall owns how models write: the forms of their tool calls, and the parser that
// separates an output into text, reasoning and calls. It never writes an answer for a client and
// never compiles a grammar: [jsonschema.Calls] makes one from a [Form].
//
//	form, ok := toolcall.FormOf(rendered) // of the model's chat template, with a call of toolcall.ProbeName in it
//	p := toolcall.NewParser(toolcall.Options{Form: form, Tools: []string{"weather"}})
//	for piece := range pieces {
//		for _, e := range p.Next(piece, false) {
//			…
//		}
//	}
//	rest := p.Next("", true)
//
// Values are not safe for concurrent use, except forms, which are constant.
//
// [jsonschema.Calls]: github.com/coppice-llm/coppice/grammar/jsonschema.Calls
package toolcall
