package actors

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/grammar"
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
	err := held.Extend(a.sys.cfg.Memory, compileBytes+parseBytes*len(m.format.Text))
	switch {
	case errors.Is(err, budget.ErrNever):
		return nil, badFormat(err)
	case err != nil:
		return nil, err
	}
	defer held.Close()
	d, err := m.format.Language.Read(m.format.Text)
	if err != nil {
		return nil, badFormat(err)
	}
	g, err := a.attempt(m, d.Rules, d.Free, began)
	if err != nil && d.Loose != nil && !errors.Is(err, errUnwanted) && a.sys.cause == nil {
		return a.attempt(m, d.Loose, d.Free, a.sys.now())
	}
	return g, err
}

// attempt compiles what the format of m describes, until FormatTimeout after began.
func (a *compilerActor) attempt(m *compile, describe func() (grammar.Rules, error), free *grammar.Free, began time.Duration) (*grammar.Grammar, error) {
	rules, err := describe()
	if err != nil {
		return nil, badFormat(err)
	}
	c, err := grammar.NewCompiler(a.sys.cfg.Scheduler.Vocabulary, rules, grammar.Limits{Bytes: compileBytes})
	if err == nil && free != nil {
		err = c.Around(*free)
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

// drop is called when the compiler panicked on message. If message is a compile, drop
// reports err to the formats actor as the error of that format.
func (a *compilerActor) drop(message any, err error) {
	if m, ok := message.(*compile); ok {
		a.sys.formats.tell(&compiled{compile: m, err: err})
	}
}
