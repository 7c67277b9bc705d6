package chat

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/internal/enum"
)

// ToolsPrompt selects how a model learns of tools, calls and results that its template does not print.
type ToolsPrompt uint8

// The modes.
const (
	// AutoTools uses the template's words where it has some. Tools that the template does not print are
	// described in the system message, and calls and results that it does not print become text: see
	// [Template.DropsTools]. A conversation that the template refuses is put into a form that it takes:
	// one call per message, arguments as text, short ids.
	AutoTools ToolsPrompt = iota
	// TemplateTools gives the template every conversation as it is. ErrToolsDropped if it does not print
	// the tools.
	TemplateTools
	// NoToolsPrompt is AutoTools without words of this package: ErrToolsDropped where they would be needed.
	NoToolsPrompt
)

var toolsPrompts = enum.New[ToolsPrompt]("chat", "tools prompt", "auto", "template", "none")

// String returns "auto", "template" or "none".
func (p ToolsPrompt) String() string { return toolsPrompts.Name(p) }

// UnmarshalText parses the result of String.
func (p *ToolsPrompt) UnmarshalText(text []byte) error { return toolsPrompts.Read(p, text) }

// ErrToolsDropped is wrapped by the error for a conversation of which the template would leave out tools,
// calls or results, so that the model would never see them.
var ErrToolsDropped = errors.New("chat: the model's chat template drops tools")

// errTools is ErrToolsDropped for something that the template does not print.
func errTools(what string) error {
	return fmt.Errorf("%w: it prints no %s, so the model would never see them; leave out tools and calls, or use the tools prompt auto (--tools-prompt auto), which writes them itself", ErrToolsDropped, what)
}

// DropsTools reports whether the template that is chosen for conversations with tools prints none in any of
// the conversations with which it was tried when it was opened.
func (t *Template) DropsTools() bool {
	p := t.withTools()
	return p != nil && p.habits.shows == never
}

// OneCall reports whether the template that is chosen for conversations with tools takes only one call per
// message: it refuses or drops a second one.
func (t *Template) OneCall() bool {
	p := t.withTools()
	return p != nil && p.habits.own.single
}

// withTools returns the template for conversations with tools, nil if there is none by default.
func (t *Template) withTools() *program {
	if p, ok := t.programs[toolName]; ok {
		return p
	}
	return t.programs[defaultName]
}

// plan lists the changes of a conversation before the template sees it.
type plan struct {
	tools     bool // tools are described in the system message; the template sees none
	calls     bool // calls become text of the assistant
	results   bool // results become turns of the user
	fold      bool // the system message becomes the beginning of the user's first turn
	single    bool // a message with several calls becomes several, each followed by its result
	text      bool // arguments are a text
	short     bool // ids of calls have nine letters or digits
	functions bool // the template reads the tools from the variable functions
	fill      bool // tools get the descriptions and parameters that they lack
	empty     bool // without tools the template gets an empty list
}

// plan returns the changes for a conversation. offered says that it has tools, told that it has calls or
// results. It fails with ErrToolsDropped if mode forbids what would be needed.
func (h *habits) plan(mode ToolsPrompt, offered, told bool) (plan, error) {
	drops := h.shows == never
	switch {
	case mode == TemplateTools && offered && drops:
		return plan{}, errTools("tools")
	case mode == TemplateTools, drops && !offered && !told:
		return plan{}, nil
	case mode == AutoTools && drops:
		return h.whole(), nil
	case mode == AutoTools:
		return h.own, nil
	case drops:
		return plan{}, errTools("tools")
	case told && h.own.calls:
		return plan{}, errTools("calls")
	case told && h.own.results:
		return plan{}, errTools("results")
	}
	return h.own, nil
}

// whole returns the plan for a conversation in which the template prints no tools.
func (h *habits) whole() plan {
	return plan{tools: true, calls: true, results: true, fold: h.fold, empty: h.own.empty}
}

// told reports whether a conversation has calls or results.
func told(messages []Message) bool {
	for i := range messages {
		if m := &messages[i]; len(m.ToolCalls) > 0 || m.Role == toolRole {
			return true
		}
	}
	return false
}
