package conversation

import (
	"encoding/json"
	"slices"

	"github.com/coppice-llm/coppice/grammar/toolcall"
	"github.com/coppice-llm/coppice/internal/jsonbody"
)

// Calls selects how tool calls in the text of an output are treated.
type Calls uint8

// Values of Calls.
const (
	NoCalls     Calls = iota
	AnyCalls          // calls are separated from the text
	OneCall           // likewise, and only the first is kept
	ForcedCalls       // the text consists of calls only
)

// Tool describes a tool that the model may call.
type Tool = toolcall.Tool

// Choice says which tools an output may or must call. The zero value leaves it to the model.
type Choice struct {
	None, Required bool
	Name           string // the one tool that must be called
	From           string // path of the field that requires a call
	Parallel       *bool  // whether there may be several calls; nil: unless Name is set
	Form           string // of the calls, one of package toolcall's. "": hermes
}

// Offer gives an output the tools: it sets Calls, which says how calls in the output are treated, and
// ToolNames. It also sets a format: if the choice forces a call, if the request has a schema that an
// output without calls must match, and otherwise one that holds a call to its tool's schema once it
// begins. Options.Tools, which the template shows to the model, are the caller's. Offer returns an *Error
// for a choice that can't be met.
func (t *Turn) Offer(tools []Tool, choice Choice) error {
	forced := choice.Required || choice.Name != ""
	switch {
	case choice.None:
		t.Options.Tools = nil
		return nil
	case len(tools) == 0 && forced:
		return Invalid(choice.From, "invalid_value", "%s requires a tool call, but there are no tools", choice.From)
	case len(tools) == 0:
		return nil
	}
	all, most := tools, toolcall.MaxCalls
	if choice.Name != "" {
		i := slices.IndexFunc(tools, func(t Tool) bool { return t.Name == choice.Name })
		if i < 0 {
			return Invalid(choice.From, "invalid_value", "%s is %q, but no tool has that name", choice.From, jsonbody.Clip(choice.Name))
		}
		tools = []Tool{{Name: tools[i].Name, Parameters: FillWrapper(tools[i].Parameters)}}
	}
	asked := choice.Parallel != nil && *choice.Parallel
	if choice.Parallel != nil && !asked || choice.Name != "" && !asked {
		most = 1
	}
	switch t.Calls = AnyCalls; {
	case forced && t.From.Format != "" && !t.From.Answer:
		return Invalid(t.From.Format, "invalid_value", "%s and %s both constrain the output, want one", t.From.Format, choice.From)
	case forced:
		t.Calls = ForcedCalls
		t.hold(toolcall.Offer{Tools: tools, Most: most}, choice.Form)
	case t.Format.JSON:
		t.hold(toolcall.Offer{Tools: tools, Most: most, Answer: json.RawMessage(`{"type":"object"}`)}, choice.Form)
	case t.Format.JSONSchema != "" && t.From.Answer:
		t.hold(toolcall.Offer{Tools: tools, Most: most, Answer: json.RawMessage(t.Format.JSONSchema)}, choice.Form)
	case t.Format == (Format{}) && len(t.AllowedTokens) == 0: // a call might need other tokens
		t.hold(toolcall.Offer{Auto: true, Tools: tools, Most: most}, choice.Form)
	}
	if t.Calls == AnyCalls && most == 1 {
		t.Calls = OneCall
	}
	for _, tool := range all {
		t.ToolNames = append(t.ToolNames, tool.Name)
	}
	return nil
}

// hold sets a format for the whole output.
func (t *Turn) hold(o toolcall.Offer, form string) {
	o.Form = form
	t.Format, t.From.Format = Format{Calls: o.String()}, "tools"
}

// Open says that the prompt ends with the opening tag of the model's reasoning, in which calls
// do not count.
func (f *Format) Open() { f.Calls = toolcall.Open(f.Calls) }
