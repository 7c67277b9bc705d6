package chat

import (
	"slices"
	"strings"
)

// test implements the expression "v is name(a)".
type test func(r *run, v any, a *arguments) bool

// tests returns all tests by name.
func tests() map[string]test {
	all := map[string]test{
		"defined":   func(_ *run, v any, _ *arguments) bool { return !isType[undefined](v) },
		"undefined": func(_ *run, v any, _ *arguments) bool { return isType[undefined](v) },
		"none":      func(_ *run, v any, _ *arguments) bool { return v == nil },
		"boolean":   func(_ *run, v any, _ *arguments) bool { return isType[bool](v) },
		"true":      func(_ *run, v any, _ *arguments) bool { return v == true },
		"false":     func(_ *run, v any, _ *arguments) bool { return v == false },
		"integer":   func(_ *run, v any, _ *arguments) bool { return isType[int64](v) || isType[wide](v) },
		"float":     func(_ *run, v any, _ *arguments) bool { return isType[float64](v) },
		"number":    func(_ *run, v any, _ *arguments) bool { return isNumber(v) || isType[wide](v) },
		"string":    func(_ *run, v any, _ *arguments) bool { return isType[string](v) },
		"mapping":   func(_ *run, v any, _ *arguments) bool { return isType[*dict](v) },
		"sequence":  func(_ *run, v any, _ *arguments) bool { return hasItems(v) },
		"iterable":  func(_ *run, v any, _ *arguments) bool { return hasItems(v) },
		"callable": func(_ *run, v any, _ *arguments) bool {
			return isType[function](v) || isType[method](v) || isType[*macro](v)
		},
		"sameas": func(r *run, v any, a *arguments) bool {
			other := a.need(0, "")
			return typeName(v) == typeName(other) && hashable(v) && hashable(other) && v == other
		},
		"in":   func(r *run, v any, a *arguments) bool { return r.contains(a.need(0, ""), v) },
		"odd":  func(r *run, v any, _ *arguments) bool { return r.equal(r.arithmetic("%", v, int64(2)), int64(1), 0) },
		"even": func(r *run, v any, _ *arguments) bool { return r.equal(r.arithmetic("%", v, int64(2)), int64(0), 0) },
		"divisibleby": func(r *run, v any, a *arguments) bool {
			return r.equal(r.arithmetic("%", v, a.need(0, "")), int64(0), 0)
		},
		"lower":  func(r *run, v any, _ *arguments) bool { return cased(r.text(v), strings.ToLower(r.text(v))) },
		"upper":  func(r *run, v any, _ *arguments) bool { return cased(r.text(v), strings.ToUpper(r.text(v))) },
		"filter": func(r *run, v any, _ *arguments) bool { return r.filters[asString("filter", v)] != nil },
		"test":   func(r *run, v any, _ *arguments) bool { return r.tests[asString("test", v)] != nil },
	}
	for op, names := range map[string][]string{
		"==": {"eq", "equalto"}, "!=": {"ne"}, "<": {"lt", "lessthan"}, "<=": {"le"}, ">": {"gt", "greaterthan"}, ">=": {"ge"},
	} {
		for _, name := range slices.Concat(names, []string{op}) {
			all[name] = func(r *run, v any, a *arguments) bool { return r.compare(op, v, a.need(0, "")) }
		}
	}
	for name, f := range all {
		all[name] = func(r *run, v any, a *arguments) bool {
			r.spend(1)
			if s, ok := v.(string); ok {
				r.spendText(len(s))
			}
			is := f(r, v, a)
			a.done()
			return is
		}
	}
	return all
}

func hasItems(v any) bool {
	return isType[string](v) || isType[*list](v) || isType[*dict](v) || isType[undefined](v)
}

func isType[T any](v any) bool {
	_, ok := v.(T)
	return ok
}
