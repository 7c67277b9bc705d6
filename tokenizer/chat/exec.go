package chat

import (
	"fmt"

	"github.com/coppice-llm/coppice/internal/bail"
)

func (d *data) exec(r *run, _ *scope) signal {
	r.write(d.text)
	return normally
}

func (p *print) exec(r *run, s *scope) signal {
	r.write(r.text(r.eval(p.value, s)))
	return normally
}

func (c *choice) exec(r *run, s *scope) signal {
	for i, test := range c.tests {
		if truth(r.eval(test, s)) {
			return r.exec(c.bodies[i], s)
		}
	}
	return r.exec(c.other, s)
}

// roundSteps is the number of steps that one iteration of a loop costs. An iteration needs a map
// for its names.
const roundSteps = 8

func (l *loopOver) exec(r *run, s *scope) signal {
	items := r.items(r.eval(l.over, s))
	if l.where != nil {
		var kept []any
		for _, v := range items {
			r.spend(roundSteps)
			inner := &scope{parent: s}
			r.assign(&l.target, v, inner)
			if truth(r.eval(l.where, inner)) {
				kept = append(kept, v)
			}
		}
		items = kept
	}
	state, completed := &loop{items: items}, false
	for i, v := range items {
		r.spend(roundSteps)
		inner := &scope{parent: s}
		state.at = i
		inner.set("loop", state)
		r.assign(&l.target, v, inner)
		how := r.exec(l.body, inner)
		if how == breaking {
			break
		}
		completed = completed || how == normally
	}
	if !completed { // Jinja's else is for loops without a completed iteration
		return r.exec(l.other, &scope{parent: s})
	}
	return normally
}

func (a *assign) exec(r *run, s *scope) signal {
	r.assign(&a.target, r.eval(a.value, s), s)
	return normally
}

func (a *assignBlock) exec(r *run, s *scope) signal {
	v := any(r.capture(a.body, &scope{parent: s}))
	r.assign(&a.target, r.filtered(a.filters, v, s), s)
	return normally
}

func (f *filterBlock) exec(r *run, s *scope) signal {
	v := any(r.capture(f.body, &scope{parent: s}))
	r.write(r.text(r.filtered(f.filters, v, s)))
	return normally
}

func (r *run) filtered(all []filterCall, v any, s *scope) any {
	for i := range all {
		v = r.filter(all[i].name)(r, v, r.arguments(&all[i].args, s))
	}
	return v
}

func (d *define) exec(r *run, s *scope) signal {
	m := &macro{define: d, scope: s}
	for _, e := range d.defaults {
		m.defaults = append(m.defaults, r.eval(e, s))
	}
	s.set(d.name, m)
	return normally
}

func (w *with) exec(r *run, s *scope) signal {
	inner := &scope{parent: s}
	for i, name := range w.names {
		inner.set(name, r.eval(w.values[i], s))
	}
	return r.exec(w.body, inner)
}

func (b *block) exec(r *run, s *scope) signal { return r.exec(b.body, &scope{parent: s}) }

func (j *jump) exec(*run, *scope) signal { return j.how }

// assign assigns v to the target t in the scope s. It fails if t has several names and v another
// number of items, or if t is an attribute of a value that is no namespace.
func (r *run) assign(t *target, v any, s *scope) {
	switch {
	case t.several != nil:
		items := r.items(v)
		if len(items) != len(t.several) {
			fail("%d values for %d names", len(items), len(t.several))
		}
		for i := range t.several {
			r.assign(&t.several[i], items[i], s)
		}
	case t.field != "":
		holder, _ := s.get(t.name)
		ns, ok := holder.(*namespace)
		if !ok {
			fail("%q is no namespace, so its attributes can't be set", t.name)
		}
		ns.fields.set(t.field, v)
	default:
		s.set(t.name, v)
	}
}

// loop is the variable loop of a for statement. at is the index of the current item; changed has
// the arguments of the last call of loop.changed.
type loop struct {
	items   []any
	at      int
	changed []any
}

func (l *loop) attribute(name string) any {
	n := len(l.items)
	switch name {
	case "index":
		return int64(l.at + 1)
	case "index0":
		return int64(l.at)
	case "revindex":
		return int64(n - l.at)
	case "revindex0":
		return int64(n - l.at - 1)
	case "first":
		return l.at == 0
	case "last":
		return l.at == n-1
	case "length":
		return int64(n)
	case "depth":
		return int64(1) // the depth of recursive loops, which are not supported
	case "depth0":
		return int64(0)
	case "previtem":
		if l.at == 0 {
			return undefined{"there is no previous item"}
		}
		return l.items[l.at-1]
	case "nextitem":
		if l.at == n-1 {
			return undefined{"there is no next item"}
		}
		return l.items[l.at+1]
	case "cycle", "changed":
		return method{l, name}
	}
	return undefined{fmt.Sprintf("loop has no attribute %q", name)}
}

// macro is a macro with the scope of its definition.
type macro struct {
	*define
	scope    *scope
	defaults []any
}

func (m *macro) call(r *run, a *arguments) any {
	if r.calls++; r.calls > maxCalls {
		bail.Out(fmt.Errorf("%w: macros call each other over %d deep", ErrLimit, maxCalls))
	}
	a.of = "macro " + m.name
	inner := &scope{parent: m.scope}
	for i, param := range m.params {
		if v, ok := a.take(i, param); ok {
			inner.set(param, v)
		} else if d := i - (len(m.params) - len(m.defaults)); d >= 0 {
			inner.set(param, m.defaults[d])
		} else {
			inner.set(param, undefined{fmt.Sprintf("parameter %q was not provided", param)})
		}
	}
	a.done()
	text := r.capture(m.body, inner)
	r.calls--
	return text
}
