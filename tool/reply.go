package tool

import (
	"fmt"
	"strings"

	"github.com/coppice-llm/coppice/grammar/toolcall"
	"github.com/coppice-llm/coppice/grammar/toolcall/parse"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Format returns the text of a coppice.Format in the language jsonschema.ToolCalls that holds the calls of an output to the form and
// to the schemas of the tools, from the moment that a call begins; with must the output consists of calls. opened says
// that the prompt ends with the opening tag of the model's reasoning, in which calls do not count.
func (c *Calling) Format(tools []Tool, must, opened bool) string {
	offer := toolcall.Offer{Auto: !must, Form: c.Form.Name, Most: toolcall.MaxCalls}
	for i := range tools {
		offer.Tools = append(offer.Tools, toolcall.Tool{Name: tools[i].Name, Parameters: tools[i].Parameters})
	}
	if opened {
		return toolcall.Open(offer.String())
	}
	return offer.String()
}

// Reply has the parts of an output.
type Reply struct {
	Text      string
	Reasoning string
	Calls     []chat.ToolCall // with the ids call00001 and so on
}

// Reading says how an output came about.
type Reading struct {
	Held   bool // Format held it to its form
	Opened bool // the prompt ends with the opening tag of the reasoning
	First  int  // number of the first call's id. Default: 1
}

// Read separates an output into its text, its reasoning and its calls of tools. A call that the end
// of the output cut has what there is of its arguments, which may be no JSON.
func (c *Calling) Read(output string, tools []Tool, r Reading) (reply Reply) {
	names := make([]string, len(tools))
	for i := range tools {
		names[i] = tools[i].Name
	}
	p := parse.NewParser(parse.Options{Form: c.Form, Tools: names, Exact: r.Held, Reasoning: c.Thinks, Opened: c.Thinks && r.Opened})
	var text, thought strings.Builder
	for _, e := range p.Next(output, true) {
		last := len(reply.Calls) - 1
		switch e.Kind {
		case parse.Text:
			text.WriteString(e.Text)
		case parse.Thought:
			thought.WriteString(e.Text)
		case parse.Call:
			// Nine letters and digits, as Mistral's templates demand.
			id := fmt.Sprintf("call%05d", (max(r.First, 1)+len(reply.Calls))%100000)
			reply.Calls = append(reply.Calls, chat.ToolCall{ID: id, Name: e.Text})
		case parse.Arguments:
			reply.Calls[last].Arguments = append(reply.Calls[last].Arguments, e.Text...)
		}
	}
	clean := func(b *strings.Builder) string {
		s := b.String()
		for _, m := range c.Marks {
			s = strings.ReplaceAll(s, m, "")
		}
		return s
	}
	reply.Text, reply.Reasoning = clean(&text), clean(&thought)
	return reply
}
