package conversation

import (
	"encoding/json"
	"slices"
	"strings"

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

// Tool describes a tool that the model may call. Parameters is the JSON schema of its arguments.
type Tool struct {
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
}

// Choice says which tools an output may or must call. The zero value leaves it to the model.
type Choice struct {
	None, Required bool
	Name           string // the one tool that must be called
	From           string // path of the field that requires a call
	Parallel       *bool  // whether there may be several calls; nil: unless Name is set
	Form           string // of the calls, one of package toolcall's. "": hermes
}

// maxCalls is the most calls in an output. A model that writes more repeats itself.
const maxCalls = 8

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
	all, most := tools, maxCalls
	if choice.Name != "" {
		i := slices.IndexFunc(tools, func(t Tool) bool { return t.Name == choice.Name })
		if i < 0 {
			return Invalid(choice.From, "invalid_value", "%s is %q, but no tool has that name", choice.From, jsonbody.Clip(choice.Name))
		}
		tools = []Tool{{tools[i].Name, FillWrapper(tools[i].Parameters)}}
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
		t.hold(callFormat{Tools: tools, Most: most}, choice.Form)
	case t.Format.JSON:
		t.hold(callFormat{Tools: tools, Most: most, Answer: json.RawMessage(`{"type":"object"}`)}, choice.Form)
	case t.Format.JSONSchema != "" && t.From.Answer:
		t.hold(callFormat{Tools: tools, Most: most, Answer: json.RawMessage(t.Format.JSONSchema)}, choice.Form)
	case t.Format == (Format{}) && len(t.AllowedTokens) == 0: // a call might need other tokens
		t.hold(callFormat{Auto: true, Tools: tools, Most: most}, choice.Form)
	}
	if t.Calls == AnyCalls && most == 1 {
		t.Calls = OneCall
	}
	for _, tool := range all {
		t.ToolNames = append(t.ToolNames, tool.Name)
	}
	return nil
}

// callFormat is Format.Calls. If Answer is set, it is a JSON schema, and the output may instead be
// an answer that matches this schema.
type callFormat struct {
	Auto   bool            `json:"auto,omitempty"` // first, see Format.Open
	Form   string          `json:"form,omitempty"`
	Tools  []Tool          `json:"tools"`
	Most   int             `json:"most"` // calls
	Answer json.RawMessage `json:"answer,omitempty"`
}

// hold sets a format for the whole output.
func (t *Turn) hold(f callFormat, form string) {
	if form != "hermes" {
		f.Form = form
	}
	b, err := json.Marshal(f)
	if err != nil {
		panic("conversation: schemas of a sound text can't be written: " + err.Error())
	}
	t.Format, t.From.Format = Format{Calls: string(b)}, "tools"
}

// Open says that the prompt ends with the opening tag of the model's reasoning, in which calls
// do not count.
func (f *Format) Open() {
	const auto = `{"auto":true,`
	if rest, ok := strings.CutPrefix(f.Calls, auto); ok {
		f.Calls = auto + `"opened":true,` + rest
	}
}
