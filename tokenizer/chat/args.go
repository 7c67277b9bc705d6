package chat

import "slices"

// arguments are the values of a call. The called function takes them one by one, and then done
// refuses the rest.
type arguments struct {
	of         string // name of the called function, for errors
	positional []any
	names      []string
	named      []any
	taken      int // positional arguments taken
}

func (r *run) arguments(a *argExprs, s *scope) *arguments {
	out := &arguments{names: slices.Clone(a.names)}
	for _, e := range a.positional {
		out.positional = append(out.positional, r.eval(e, s))
	}
	for _, e := range a.named {
		out.named = append(out.named, r.eval(e, s))
	}
	return out
}

// done fails if arguments are left that the function has not taken.
func (a *arguments) done() {
	if len(a.positional) > a.taken {
		fail("%s takes %d arguments, and got %d", a.of, a.taken, len(a.positional))
	}
	if len(a.names) > 0 {
		fail("%s takes no argument %q", a.of, a.names[0])
	}
}

// need is take for a required argument.
func (a *arguments) need(i int, name string) any {
	v, ok := a.take(i, name)
	if !ok {
		fail("%s needs the argument %q", a.of, name)
	}
	return v
}

// str and integer are or for text and for whole numbers. They fail for a value of another type.

func (a *arguments) str(i int, name, other string) string {
	return asString(a.of, a.or(i, name, other))
}

func (a *arguments) integer(i int, name string, other int64) int64 {
	return asInt(a.of, a.or(i, name, other))
}

// or is take with a default: it returns other if the argument is not given.
func (a *arguments) or(i int, name string, other any) any {
	if v, ok := a.take(i, name); ok {
		return v
	}
	return other
}

// take returns positional argument i or, if there is none, the argument called name. It returns
// false if neither is given. With i < 0 it takes the argument only by name, with name "" only by
// position. It fails if the argument is given both ways.
func (a *arguments) take(i int, name string) (any, bool) {
	if 0 <= i && i < len(a.positional) {
		a.taken = max(a.taken, i+1)
		if slices.Contains(a.names, name) {
			fail("%s got %q twice", a.of, name)
		}
		return a.positional[i], true
	}
	at := slices.Index(a.names, name)
	if at < 0 || name == "" {
		return nil, false
	}
	v := a.named[at]
	a.names, a.named = slices.Delete(a.names, at, at+1), slices.Delete(a.named, at, at+1)
	return v, true
}

func asString(of string, v any) string {
	s, ok := v.(string)
	if !ok {
		fail("%s wants text, and got %s", of, described(v))
	}
	return s
}

func asInt(of string, v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case bool:
		if v {
			return 1
		}
		return 0
	}
	fail("%s wants a whole number, and got %s", of, described(v))
	return 0
}

// described describes v in an error.
func described(v any) string {
	if u, ok := v.(undefined); ok {
		return "an undefined value (" + u.why + ")"
	}
	return "a value of type " + typeName(v)
}
