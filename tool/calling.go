package tool

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/grammar/toolcall"
	"github.com/coppice-llm/coppice/grammar/toolcall/parse"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Calling is how a model calls tools.
type Calling struct {
	Form   *toolcall.Form
	Why    string     // why this form: follows its name in a sentence; "" without a chat template
	Tokens []kv.Token // control tokens around calls; the output needs their text: Request.SpecialText
	Marks  []string   // the texts of Tokens
	Thinks bool       // the model may write reasoning between tags, which are single tokens
}

// CallingOf returns how a model with this chat template and this tokenizer calls tools; either may be
// nil. The form is the given one, else that of the calls in conversations that the template renders,
// else that of the calls that are written for the template as mode says, else toolcall.Hermes.
func CallingOf(t *chat.Template, tok *tokenizer.Tokenizer, form *toolcall.Form, mode chat.ToolsPrompt) Calling {
	c := Calling{Form: form}
	if t != nil {
		c.choose(t, mode)
	}
	if c.Form == nil {
		c.Form = toolcall.Hermes
	}
	if tok != nil {
		c.Marks = parse.Marks(c.Form, tok.ControlTokens())
		for _, m := range c.Marks {
			token, _ := tok.AddedToken(m)
			c.Tokens = append(c.Tokens, token)
		}
		c.Thinks = len(tok.Encode(nil, toolcall.OpenThinking)) == 1 && len(tok.Encode(nil, toolcall.CloseThinking)) == 1
	}
	return c
}

// Opened reports whether a rendered conversation ends with the opening tag of the model's reasoning.
func (c *Calling) Opened(rendered string) bool { return c.Thinks && parse.OpensThinking(rendered) }

// choose sets the form, if it is not given, and why. A template may leave out calls that are then
// written for it.
func (c *Calling) choose(t *chat.Template, mode chat.ToolsPrompt) {
	written, unknown := FormOf(t, chat.TemplateTools)
	why := "as the chat template writes them"
	if written == nil && !unknown && mode != chat.TemplateTools {
		written, unknown = FormOf(t, mode)
		why = "as the server writes them for the chat template"
	}
	switch {
	case c.Form != nil && written != nil && written != c.Form:
		c.Why = "as configured; conversations have " + written.Name
	case c.Form != nil:
		c.Why = "as configured"
	case written != nil:
		c.Form, c.Why = written, why
	case unknown:
		c.Why = "since the form in the chat template is unknown"
	default:
		c.Why = "since the chat template shows no form"
	}
}

// FormOf returns the form of the calls in conversations that t renders, nil if it is not known. unknown
// reports that there are calls in another form. It tries several conversations, because templates refuse
// different ones: some take arguments as an object and others as text, and some want a result after
// each call.
func FormOf(t *chat.Template, mode chat.ToolsPrompt) (form *toolcall.Form, unknown bool) {
	object := parse.ProbeArguments
	text, _ := json.Marshal(object)
	for _, arguments := range []string{object, string(text)} {
		for _, result := range []bool{true, false} {
			rendered, err := t.Render(probe(arguments, result), probeOptions(mode))
			if err != nil {
				continue
			}
			if form = parse.FormOf(rendered); form != nil {
				return form, false
			}
			unknown = unknown || strings.Contains(rendered, parse.ProbeName)
		}
	}
	return nil, unknown
}

// probeID has nine letters and digits, as Mistral's templates demand.
const probeID = "probe0001"

// probeBytes is more memory than any published template needs to render a probe. One that never ends
// must not keep a server from starting.
const probeBytes = 4 << 20

var errProbe = errors.New("tool: the chat template needs too much for a short conversation")

// probeOptions returns options that offer a tool, since some templates write calls only then. The
// tool is not the one that is called: a list of tools may look like a call.
func probeOptions(mode chat.ToolsPrompt) chat.Options {
	left := probeBytes
	return chat.Options{
		ToolsPrompt:         mode,
		AddGenerationPrompt: true,
		Now:                 time.Unix(0, 0),
		Tools:               []json.RawMessage{json.RawMessage(listedTool)},
		Charge: func(bytes int) error {
			if left -= bytes; left < 0 {
				return errProbe
			}
			return nil
		},
	}
}

const listedTool = `{"type":"function","function":{"name":"listed_tool","description":"A tool.","parameters":{"type":"object",` +
	`"properties":{"probe_key":{"type":"string","description":"A key."}},"required":["probe_key"]}}}`

// probe returns a conversation with a call. arguments are a JSON object, or its text as a JSON string.
func probe(arguments string, result bool) []chat.Message {
	call := `[{"id":"` + probeID + `","type":"function","function":{"name":"` + parse.ProbeName + `","arguments":` + arguments + `}}]`
	all := []chat.Message{
		{Role: "user", Content: "Probe."},
		{Role: "assistant", Extra: map[string]json.RawMessage{"tool_calls": json.RawMessage(call)}},
	}
	if result {
		all = append(all, chat.Message{Role: "tool", Name: parse.ProbeName, ToolCallID: probeID, Content: "Done."})
	}
	return all
}
