package chat

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/internal/bail"
)

// functions returns the functions that every template sees.
func functions() map[string]function {
	return map[string]function{
		"range": rangeOf, "namespace": makeNamespace, "dict": makeDict, "raise_exception": raise,
	}
}

// maxRange is MAX_RANGE of Jinja's sandbox.
const maxRange = 100_000

func rangeOf(r *run, a *arguments) any {
	a.of = "range"
	start, stop, step := int64(0), asInt(a.of, a.need(0, "")), a.integer(2, "", 1)
	if second, ok := a.take(1, ""); ok {
		start, stop = stop, asInt(a.of, second)
	}
	a.done()
	if step == 0 {
		fail("range with step 0")
	}
	out := &list{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(out.items) == maxRange {
			fail("range of over %d numbers", maxRange)
		}
		r.spend(1)
		out.items = append(out.items, i)
		if (i+step > i) != (step > 0) {
			break // the next one needs more than 64 bits
		}
	}
	return out
}

func makeNamespace(r *run, a *arguments) any { return &namespace{r.makeFields(a, "namespace")} }

func makeDict(r *run, a *arguments) any { return r.makeFields(a, "dict") }

// makeFields makes a dictionary from the arguments a: the entries of an optional dictionary, and
// then the keyword arguments. The parameter of is the name of the called function, for errors.
func (r *run) makeFields(a *arguments, of string) *dict {
	a.of = of
	r.spend(dictSteps * (1 + len(a.names)))
	out := newDict()
	if v, ok := a.take(0, ""); ok {
		from, ok := v.(*dict)
		if !ok {
			fail("%s of %s", of, described(v))
		}
		r.spend(dictSteps * len(from.keys))
		for i, key := range from.keys {
			out.set(key, from.values[i])
		}
	}
	for _, name := range slices.Clone(a.names) {
		v, _ := a.take(-1, name)
		out.set(name, v)
	}
	a.done()
	return out
}

// raise ends the rendering with the template's message.
func raise(r *run, a *arguments) any {
	a.of = "raise_exception"
	bail.Out(fmt.Errorf("%w: %.1000s", ErrRefused, r.text(a.need(0, "message"))))
	return nil
}
