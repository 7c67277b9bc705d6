package jsonschema

import (
	"fmt"

	"github.com/coppice-llm/coppice/grammar"
)

// Calls describes an output that calls tools, in the form of Hermes and Qwen models,
// one call after another with a line break between them:
//
//	<tool_call>
//	{"name": "weather", "arguments": {"city": "Paris"}}
//	</tool_call>
//
// Source: the chat templates of NousResearch/Hermes-2-Pro and Qwen/Qwen2.5.
type Calls struct {
	Tools []Tool
	Most  int // largest number of calls in one output, 1 or more
	// Answer is a schema for outputs without calls: the output may instead be a JSON text that
	// is valid against it. If nil, the output must call a tool.
	Answer []byte
}

// Tool is a function that the model may call.
type Tool struct {
	Name       string
	Parameters []byte // schema of its arguments, an object; nil means that it takes none: {}
}

// The fixed parts of a call, and the text between two calls.
const (
	callOpen, callArguments = "<tool_call>\n{\"name\": ", ", \"arguments\": "
	callClose               = "}\n</tool_call>"
	callGap                 = "\n"
)

// Rules returns the grammar of c. Errors are those of the function [Rules], with the tool's
// name. cfg.MaxSize bounds all tools together.
func (c Calls) Rules(cfg Config) (grammar.Rules, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	answer := cfg
	cfg.Inline = true // as models are trained to write calls; small models would indent without end
	if len(c.Tools) == 0 || c.Most < 1 {
		return nil, fmt.Errorf("%w: %d tools and %d calls, want at least one of each", ErrSchema, len(c.Tools), c.Most)
	}
	call := &grammar.Expr{Op: grammar.Call, Rule: 1}
	rules := grammar.Rules{nil, nil}
	tools := make([]*grammar.Expr, len(c.Tools))
	for i, tool := range c.Tools {
		own, err := tool.rules(cfg)
		if err != nil {
			return nil, fmt.Errorf("tool %.100q: %w", tool.Name, err)
		}
		tools[i] = seq(lit(quote(tool.Name)+callArguments), &grammar.Expr{Op: grammar.Call, Rule: len(rules)})
		rules = adjoin(rules, own)
	}
	rules[0] = seq(call, repeat(seq(lit(callGap), call), 0, c.Most-1))
	rules[1] = seq(lit(callOpen), either(tools...), lit(callClose))
	if c.Answer != nil {
		own, err := Rules(c.Answer, answer)
		if err != nil {
			return nil, err
		}
		rules[0] = either(rules[0], &grammar.Expr{Op: grammar.Call, Rule: len(rules)})
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

// rules returns the grammar of the tool's arguments.
func (t Tool) rules(cfg Config) (grammar.Rules, error) {
	if t.Parameters == nil {
		return grammar.Rules{lit("{}")}, nil
	}
	return translate(t.Parameters, cfg, true)
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
