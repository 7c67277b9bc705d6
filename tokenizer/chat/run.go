package chat

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/coppice-llm/coppice/internal/bail"
)

// run is the state of one rendering: the limits left and the output.
type run struct {
	*library
	limits  Limits
	steps   int                   // steps left
	charge  func(bytes int) error // Options.Charge, nil: none
	charged int                   // steps left when charge was last called
	out     *strings.Builder
	prompt  *strings.Builder // the output that is returned; out may be a capture
	most    int              // bytes of prompt
	calls   int              // nesting of macro calls
}

// Memory is charged for each step, and at once for chargeSteps: 64 KiB. So a rendering that is no longer
// wanted ends within about a millisecond.
const stepBytes, chargeSteps = 16, 4096

// maxCalls bounds the nesting of macro calls.
const maxCalls = 64

// scope has the names that a block defines. A name that is not in it is looked up in the
// enclosing scopes.
type scope struct {
	names  map[string]any
	parent *scope
}

func (s *scope) set(name string, v any) {
	if s.names == nil {
		s.names = map[string]any{}
	}
	s.names[name] = v
}

func (s *scope) get(name string) (any, bool) {
	for ; s != nil; s = s.parent {
		if v, ok := s.names[name]; ok {
			return v, true
		}
	}
	return nil, false
}

// fail ends the rendering with ErrRender.
func fail(format string, args ...any) {
	bail.Out(fmt.Errorf("%w: %s", ErrRender, fmt.Sprintf(format, args...)))
}

// render runs the program and returns its output. variables fills in the global variables. expect
// is an estimate of the output in bytes. Of o it uses MaxBytes and Charge.
func (p *program) render(limits Limits, o *Options, expect int, variables func(r *run, globals map[string]any) error) (text string, err error) {
	defer bail.Recover(&err)
	r := &run{library: p.library, limits: limits, steps: limits.Steps, charge: o.Charge, charged: limits.Steps, out: &strings.Builder{}}
	r.prompt, r.most = r.out, min(cmp.Or(max(o.MaxBytes, 0), limits.OutputBytes), limits.OutputBytes)
	r.out.Grow(min(expect, limits.OutputBytes))
	outer := &scope{names: map[string]any{}}
	for name, f := range p.library.functions {
		outer.names[name] = f
	}
	if err := variables(r, outer.names); err != nil {
		return "", err
	}
	r.exec(p.body, &scope{parent: outer})
	return r.out.String(), nil
}

// grown uses up the steps for the bytes by which out is longer than s, from which it was made.
func (r *run) grown(s, out string) string {
	if n := len(out) - len(s); n > 0 {
		r.room(len(s), n)
	}
	return out
}

// spendKey uses up the steps to look up key.
func (r *run) spendKey(key any) {
	if s, ok := key.(string); ok {
		r.spendText(len(s))
	}
}

// write appends s to the output. It ends the rendering with ErrLimit or ErrTooLong if the output
// becomes too large.
func (r *run) write(s string) {
	if r.out == r.prompt && r.out.Len()+len(s) > r.most && r.most < r.limits.OutputBytes {
		bail.Out(fmt.Errorf("%w: over %d bytes", ErrTooLong, r.most))
	}
	r.add(r.out, s)
}

// add appends s to b. It ends the rendering with ErrLimit if b becomes longer than a prompt may be.
func (r *run) add(b *strings.Builder, s string) {
	r.room(b.Len(), len(s))
	b.WriteString(s)
}

// room uses up the steps for n more bytes of a text that has some already. It ends the rendering with
// ErrLimit if the text becomes longer than a prompt may be. It must be called before the text is made.
func (r *run) room(some, n int) {
	r.spendText(n)
	if some+n > r.limits.OutputBytes {
		bail.Out(fmt.Errorf("%w: the template makes a text of over %d bytes, which is Limits.OutputBytes", ErrLimit, r.limits.OutputBytes))
	}
}

// spendText uses up the steps for n bytes of text. It ends the rendering with ErrLimit if too few
// are left or n is negative. It must be called before the text is made.
func (r *run) spendText(n int) {
	if n < 0 {
		n = r.steps * 16
	}
	r.spend(n/16 + 1)
}

// capture executes body in the scope s and returns what body writes.
func (r *run) capture(body []stmt, s *scope) string {
	out := r.out
	r.out = &strings.Builder{}
	r.exec(body, s)
	text := r.out.String()
	r.out = out
	return text
}

func (r *run) exec(body []stmt, s *scope) signal {
	for _, x := range body {
		r.spend(1)
		if how := x.exec(r, s); how != normally {
			return how
		}
	}
	return normally
}

func (r *run) eval(e expr, s *scope) any {
	r.spend(1)
	return e.eval(r, s)
}

// spend uses up n steps. It ends the rendering with ErrLimit if fewer are left, or if n is
// negative.
func (r *run) spend(n int) {
	if n < 0 || n > r.steps {
		bail.Out(fmt.Errorf("%w: the template takes over %d steps; is it sound, or is Limits.Steps too low?", ErrLimit, r.limits.Steps))
	}
	r.steps -= n
	if r.charge != nil && r.charged-r.steps >= chargeSteps {
		if err := r.charge(stepBytes * (r.charged - r.steps)); err != nil {
			bail.Out(err)
		}
		r.charged = r.steps
	}
}
