package server

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/grammar/toolcall"
	"github.com/coppice-llm/coppice/grammar/toolcall/parse"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// calling is how the model calls tools.
type calling struct {
	form   *toolcall.Form
	why    string     // why this form: follows its name in a sentence; "" without a chat template
	tokens []kv.Token // control tokens around calls, which must have text
	marks  []string   // the texts of tokens
}

func newCalling(cfg *Config) calling {
	c := calling{form: cfg.CallForm}
	if cfg.Template != nil {
		c.choose(cfg.Template, cfg.ToolsPrompt)
	}
	if c.form == nil {
		c.form = toolcall.Hermes
	}
	if tok := cfg.Node.Tokenizer(); tok != nil {
		c.marks = parse.Marks(c.form, tok.ControlTokens())
		for _, m := range c.marks {
			token, _ := tok.AddedToken(m)
			c.tokens = append(c.tokens, token)
		}
	}
	return c
}

// choose sets the form, if the configuration does not, and why. A template may leave out calls that
// the server then writes itself.
func (c *calling) choose(t *chat.Template, mode chat.ToolsPrompt) {
	written, unknown := formOf(t, chat.TemplateTools)
	why := "as the chat template writes them"
	if written == nil && !unknown && mode != chat.TemplateTools {
		written, unknown = formOf(t, mode)
		why = "as the server writes them for the chat template"
	}
	switch {
	case c.form != nil && written != nil && written != c.form:
		c.why = "as configured; conversations have " + written.Name
	case c.form != nil:
		c.why = "as configured"
	case written != nil:
		c.form, c.why = written, why
	case unknown:
		c.why = "since the form in the chat template is unknown"
	default:
		c.why = "since the chat template shows no form"
	}
}

// ToolCalls says in which form the model's tool calls are read, and why, for people: "hermes, as the
// chat template writes them". It is empty without a chat template.
func (s *Server) ToolCalls() string {
	c := &s.policies.calling
	if c.why == "" {
		return ""
	}
	return c.form.Name + ", " + c.why
}

// formOf returns the form of the calls in conversations that t renders, nil if it is not known. unknown
// reports that there are calls in another form. It tries several conversations, because templates refuse
// different ones: some take arguments as an object and others as text, and some want a result after
// each call.
func formOf(t *chat.Template, mode chat.ToolsPrompt) (form *toolcall.Form, unknown bool) {
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
// must not keep the server from starting.
const probeBytes = 4 << 20

var errProbe = errors.New("server: the chat template needs too much for a short conversation")

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
