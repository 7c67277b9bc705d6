package jsonschema

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/grammar/toolcall"
)

// offered describes an output that calls tools in the form that the model was trained on. In the
// form of Hermes, for example:
//
//	<tool_call>
//	{"name": "weather", "arguments": {"city": "Paris"}}
//	</tool_call>
//
// Without Auto, the output consists of calls. With Auto, it is any text, and from the moment that
// a call begins it is held to the form, until the call is complete; see [offered.Free].
type offered struct {
	Form  *toolcall.Form // nil: toolcall.Hermes
	Tools []offeredTool
	Most  int // largest number of calls in one output, 1 or more
	// Answer is a schema for outputs without calls: the output may instead be a JSON text that
	// is valid against it. If nil, the output must call a tool. It has no meaning with Auto.
	Answer []byte

	Auto bool
	// Opened says that the prompt ends with the opening tag of the model's reasoning. It has a
	// meaning with Auto only.
	Opened bool
	// AnyArguments takes the arguments of all tools for any JSON object. With Auto, a tool whose
	// schema is refused is treated so, because the model may as well answer without calling it.
	AnyArguments bool
}

// offeredTool is a function that the model may call.
type offeredTool struct {
	Name       string
	Parameters []byte // schema of its arguments, an object; nil means that it takes none: {}
}

// Rules returns the grammar of c: with Auto, that of a single call or of all calls between the
// form's Begin and End, to be used with [offered.Free]. Errors are those of the function [Rules],
// with the tool's name. cfg.MaxSize bounds all tools together.
func (c offered) Rules(cfg Config) (grammar.Rules, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if len(c.Tools) == 0 || c.Most < 1 {
		return nil, fmt.Errorf("%w: %d tools and %d calls, want at least one of each", ErrSchema, len(c.Tools), c.Most)
	}
	c.Form = c.form()
	for _, t := range c.Tools {
		if end := c.Form.Arguments; c.Form.Bare && (t.Name == "" || strings.Contains(t.Name, end) || c.prompted() && t.Name == "all") {
			return nil, fmt.Errorf("%w: a tool is called %.100q, which calls of the form %s can't name: rename the tool", ErrSchema, t.Name, c.Form.Name)
		}
	}
	rules, err := c.rules(cfg.WithDefaults())
	if err != nil && c.Auto && !c.AnyArguments {
		c.AnyArguments = true
		return c.rules(cfg.WithDefaults())
	}
	return rules, err
}

func (c offered) form() *toolcall.Form { return cmp.Or(c.Form, toolcall.Hermes) }

// prompted reports whether the prompt ends with the opening of the first call, so that an output
// begins with the name of a tool.
//
// Source: the chat template of meetkai/functionary-medium-v3.2.
func (c offered) prompted() bool { return c.Form.Name == "functionary_v3.2" }

// closedByEnd reports whether the closing text of a call ends the output, so that it is not
// seen as text.
//
// Source: openai's page on the Harmony response format: <|call|> is a stop token.
func (c offered) closedByEnd() bool { return c.Form.Name == "openai" }

// rules is Rules for a c and a cfg that are complete. rules[0] is the output, rules[1] the part of
// a call from the name to the arguments.
func (c offered) rules(cfg Config) (grammar.Rules, error) {
	answer := cfg
	cfg.Inline = true // as models are trained to write calls; small models would indent without end
	rules := grammar.Rules{nil, nil}
	names, arguments := make([]*grammar.Expr, len(c.Tools)), make([]*grammar.Expr, len(c.Tools))
	var anything *grammar.Expr // shared by the tools that take any object
	for i, tool := range c.Tools {
		own, err := tool.rules(cfg)
		if any := tool.Parameters != nil && (c.AnyArguments || err != nil && c.Auto); any && anything != nil {
			arguments[i] = anything
		} else {
			if any {
				own, err = translate([]byte(anyObject), cfg, true)
			}
			if err != nil {
				return nil, fmt.Errorf("tool %.100q: %w", tool.Name, err)
			}
			if arguments[i] = call(len(rules)); any {
				anything = arguments[i]
			}
			rules = adjoin(rules, own)
		}
		names[i] = seq(lit(c.name(tool)), special(c.Form.Arguments), arguments[i])
	}
	rules[1] = either(names...)
	rules[0] = c.all()
	if c.Auto {
		rules[0] = c.auto(arguments)
	}
	if c.Answer != nil && !c.Auto {
		own, err := Rules(c.Answer, answer)
		if err != nil {
			return nil, err
		}
		rules[0] = either(rules[0], call(len(rules)))
		rules = adjoin(rules, own)
	}
	size := 0
	for _, r := range rules {
		if size += cost(r, cfg.MaxSize); size > cfg.MaxSize {
			return nil, fmt.Errorf("%w: the tools together would have over MaxSize, %d, expressions", ErrLimit, cfg.MaxSize)
		}
	}
	return rules, nil
}

// name returns the name of t as calls have it.
func (c offered) name(t offeredTool) string {
	if c.Form.Bare {
		return t.Name
	}
	return quote(t.Name)
}

// all returns the expression of up to Most calls.
func (c offered) all() *grammar.Expr {
	f := c.Form
	open := f.Open
	if c.prompted() && !c.Auto {
		open = ""
	}
	end := special(f.Close)
	if c.closedByEnd() {
		end = optional(end)
	}
	more := repeat(seq(special(f.Close+f.Gap+f.Open), call(1)), 0, c.Most-1)
	return seq(special(f.Begin+open), call(1), more, end, special(f.End))
}

// grouped reports whether all calls of an output stand together, between two marks.
func (c offered) grouped() bool { return c.Form.Begin != "" }

// auto returns the expression of what begins with a mark or a start of Free. arguments are those
// of the tools.
func (c offered) auto(arguments []*grammar.Expr) *grammar.Expr {
	most := c.Most
	if !c.grouped() {
		c.Most = 1
	}
	all := []*grammar.Expr{c.all()}
	if c.Form != toolcall.Hermes {
		return all[0]
	}
	space := optional(either(lit(" "), seq(lit("\n"), repeat(lit(" "), 0, 8))))
	for _, l := range loosened {
		tools := make([]*grammar.Expr, len(c.Tools))
		for i, t := range c.Tools {
			tools[i] = seq(lit(quote(t.Name)+","), space, lit(`"arguments":`), optional(lit(" ")), arguments[i])
		}
		rest := seq(either(tools...), space, lit(l.end))
		one := seq(lit(l.fence+l.begin), rest)
		if l.fence != "" { // several calls in one
			braces, name, _ := strings.Cut(l.begin, `"`)
			more := seq(optional(lit(",")), lit("\n"), lit(braces), space, lit(`"`+name), rest)
			one = seq(one, repeat(more, 0, most-1), space, lit("```"))
		}
		all = append(all, one)
	}
	return either(all...)
}

// loosened are the ways in which models of the Hermes form write calls without its tags: as bare
// JSON, in a fence, and with the braces doubled, as the chat template of Qwen/Qwen2.5-Coder has them
// by mistake.
var loosened = []struct{ fence, begin, end string }{
	{"", `{"name": `, "}"}, {"```json", `{"name": `, "}"}, {"```", `{"name": `, "}"},
	{"", `{{"name": `, "}}"}, {"```json", `{{"name": `, "}}"}, {"```", `{{"name": `, "}}"},
}

// Free returns the text around the calls of an output with Auto, and where calls begin: at the
// form's mark anywhere, or, where models write none, at the beginning of the output if it names a
// tool. An output that begins otherwise, such as {"name": "Alice"}, stays free text. Models of the
// Hermes form write calls without the mark at the beginning of other lines too, after prose.
//
// A mark within the reasoning at the beginning of an output begins no call. The model may quote
// the mark there, and the parser takes a call in the reasoning for a part of it: held to a call,
// the model would write one that no client sees, and with a Most of 1 could not answer after it.
func (c offered) Free() grammar.Free {
	c.Form = c.form()
	free := grammar.Free{Most: c.Most, Quiet: [2]string{toolcall.OpenThinking, toolcall.CloseThinking}, Opened: c.Opened}
	if c.grouped() {
		free.Most = 1
	}
	free.Lines = c.Form == toolcall.Hermes
	start := func(text, as string) { free.Starts = append(free.Starts, grammar.Start{Text: text, As: as}) }
	for _, t := range c.Tools {
		switch {
		case c.Form == toolcall.Hermes:
			for _, l := range loosened {
				start(l.fence+strings.ReplaceAll(l.begin, " ", "")+quote(t.Name), l.fence+l.begin+quote(t.Name))
			}
		case c.prompted():
			// The mark alone would not do: it is also the prompt of Python's shell.
			as := c.Form.Open + t.Name + c.Form.Arguments
			free.Marks = append(free.Marks, as)
			start(t.Name+c.Form.Arguments, as)
		case c.Form.Mark == "":
			start(strings.ReplaceAll(c.Form.Open, " ", "")+quote(t.Name), c.Form.Open+quote(t.Name))
		}
	}
	if c.Form.Mark != "" && !c.prompted() {
		free.Marks = []string{c.Form.Mark}
	}
	if c.closedByEnd() {
		free.Most = 1
		free.Special = []string{"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>"}
	}
	return free
}

// rules returns the grammar of the tool's arguments.
func (t offeredTool) rules(cfg Config) (grammar.Rules, error) {
	if t.Parameters == nil {
		return grammar.Rules{lit("{}")}, nil
	}
	return translate(t.Parameters, cfg, true)
}

func call(rule int) *grammar.Expr { return &grammar.Expr{Op: grammar.Call, Rule: rule} }

// special returns the expression of text that may have special tokens; nil if text is empty.
func special(text string) *grammar.Expr {
	if text == "" {
		return nil
	}
	return &grammar.Expr{Op: grammar.Special, Text: text}
}

// adjoin appends the rules of another grammar to rules. It renumbers the calls of more in place,
// each once: more may share expressions, but only the constructors' constants with other grammars.
func adjoin(rules, more grammar.Rules) grammar.Rules {
	base, seen := len(rules), make(map[*grammar.Expr]bool)
	var shift func(e *grammar.Expr)
	shift = func(e *grammar.Expr) {
		if seen[e] {
			return
		}
		seen[e] = true
		if e.Op == grammar.Call {
			e.Rule += base
		}
		for _, s := range e.Sub {
			shift(s)
		}
	}
	for _, r := range more {
		shift(r)
	}
	return append(rules, more...)
}
