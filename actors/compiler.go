package actors

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/grammar/jsonschema"
	"github.com/coppice-llm/coppice/grammar/toolcall"
	"github.com/coppice-llm/coppice/internal/budget"
	"github.com/coppice-llm/coppice/scheduler"
)

// compilers is the number of compilers: with two, one hard format does not block the others.
const compilers = 2

// compileWork is the number of work units between two looks at the clock: usually about a
// millisecond.
const compileWork = 4096

// compileBytes bounds the tables of one format.
const compileBytes = 16 << 20

// parseBytes is the memory that parsing takes for each byte of a format's text, in bytes: that of a regular
// expression's parser.
const parseBytes = 1 << 10

// errUnwanted ends a compilation whose result no request needs.
var errUnwanted = errors.New("actors: no request waits for this format")

// compilerActor compiles formats. It has no state: a panic fails only the requests that wait
// for that format.
type compilerActor struct{ sys *System }

func (a *compilerActor) receive(self *process, message any) {
	switch m := message.(type) {
	case *compile:
		g, err := a.compile(m)
		a.sys.formats.tell(&compiled{m, g, err})
	case *shutdown:
		self.quit()
	default:
		unknown(m)
	}
}

// compile compiles the format of m. It gives up with an error after FormatTimeout, when the
// system ends, and when no request waits for m.
func (a *compilerActor) compile(m *compile) (*grammar.Grammar, error) {
	began := a.sys.now()
	var held budget.Account
	err := held.Extend(a.sys.cfg.Memory, compileBytes+parseBytes*m.format.bytes())
	switch {
	case errors.Is(err, budget.ErrNever):
		return nil, badFormat(err)
	case err != nil:
		return nil, err
	}
	defer held.Close()
	d, err := m.format.described()
	if err != nil {
		return nil, badFormat(err)
	}
	g, err := a.attempt(m, d, began)
	if err != nil && d.calls.Auto && !errors.Is(err, errUnwanted) && a.sys.cause == nil {
		// The model may answer without a call, so the tools' schemas must not fail the request.
		d.calls.AnyArguments = true
		return a.attempt(m, d, a.sys.now())
	}
	return g, err
}

// attempt compiles what the format of m describes, until FormatTimeout after began.
func (a *compilerActor) attempt(m *compile, d described, began time.Duration) (*grammar.Grammar, error) {
	rules, err := d.rules()
	if err != nil {
		return nil, badFormat(err)
	}
	c, err := grammar.NewCompiler(a.sys.cfg.Scheduler.Vocabulary, rules, grammar.Limits{Bytes: compileBytes})
	if err == nil && d.calls.Auto {
		err = c.Around(d.calls.Free())
	}
	for done := false; err == nil && !done; {
		select {
		case <-a.sys.ending:
			return nil, a.sys.cause
		default:
		}
		if m.unwanted.Load() {
			return nil, errUnwanted
		}
		if took := a.sys.now() - began; took > a.sys.cfg.FormatTimeout {
			return nil, fmt.Errorf("%w: not compiled within %v, use a simpler one", ErrFormatTimeout, a.sys.cfg.FormatTimeout)
		}
		done, err = c.Run(compileWork)
	}
	if err != nil {
		return nil, badFormat(err)
	}
	return c.Grammar(), nil
}

func badFormat(err error) error {
	return &scheduler.FieldError{Field: "Format", Err: fmt.Errorf("%w: Format: %w", scheduler.ErrInvalid, err)}
}

// described holds the parsed text of a Format: of calls, or of other texts if other is set.
type described struct {
	calls jsonschema.Calls
	other func() (grammar.Rules, error)
}

func (d described) rules() (grammar.Rules, error) {
	if d.other != nil {
		return d.other()
	}
	return d.calls.Rules(jsonschema.Config{})
}

// described reads the text of f.
func (f Format) described() (d described, err error) {
	switch {
	case f.JSONSchema != "":
		d.other = func() (grammar.Rules, error) { return jsonschema.Rules([]byte(f.JSONSchema), jsonschema.Config{}) }
	case f.Regexp != "":
		d.other = func() (grammar.Rules, error) { return grammar.ParseRegexp(f.Regexp) }
	case f.Calls != "":
		d.calls, err = describedCalls(f.Calls)
	default:
		d.other = func() (grammar.Rules, error) { return jsonschema.Object(), nil }
	}
	return d, err
}

// describedCalls parses the JSON text of Format.Calls.
func describedCalls(text string) (jsonschema.Calls, error) {
	var d struct {
		Form   string `json:"form"`
		Auto   bool   `json:"auto"`
		Opened bool   `json:"opened"`
		Tools  []struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"tools"`
		Most   int             `json:"most"`
		Answer json.RawMessage `json:"answer"`
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return jsonschema.Calls{}, fmt.Errorf("the description of tool calls is malformed: %w", err)
	}
	calls := jsonschema.Calls{Most: d.Most, Answer: d.Answer, Auto: d.Auto, Opened: d.Opened}
	if d.Form != "" {
		if calls.Form = toolcall.FormByName(d.Form); calls.Form == nil {
			return calls, fmt.Errorf("no form of tool calls is named %.100q; toolcall.Forms lists them", d.Form)
		}
	}
	for _, t := range d.Tools {
		calls.Tools = append(calls.Tools, jsonschema.Tool{Name: t.Name, Parameters: t.Parameters})
	}
	return calls, nil
}

// drop is called when the compiler panicked on message. If message is a compile, drop
// reports err to the formats actor as the error of that format.
func (a *compilerActor) drop(message any, err error) {
	if m, ok := message.(*compile); ok {
		a.sys.formats.tell(&compiled{compile: m, err: err})
	}
}
