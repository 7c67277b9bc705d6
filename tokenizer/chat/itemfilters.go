package chat

import (
	"slices"
	"strconv"
	"strings"
)

// Filters that process each item of a sequence.

// picked returns a list with pick(item, attribute) for each item of v.
func (r *run) picked(v, attribute any) []any {
	items := r.copied(v)
	for i := range items {
		items[i] = r.pick(items[i], attribute)
	}
	return items
}

// mapItems implements map("filter", ...) and map(attribute=...).
func mapItems(r *run, v any, a *arguments) any {
	if !truth(v) { // None, too
		v = &list{}
	}
	if attribute, ok := a.take(-1, "attribute"); ok {
		other, has := a.take(-1, "default")
		items := r.picked(v, attribute)
		for i := range items {
			if _, missing := items[i].(undefined); missing && has {
				items[i] = other
			}
		}
		return &list{items: items}
	}
	name := a.str(0, "", "")
	f, items := r.filter(name), r.copied(v)
	for i := range items {
		items[i] = f(r, items[i], a.after(1, "filter "+name))
	}
	a.taken, a.names = len(a.positional), nil
	return &list{items: items}
}

// after returns a without its first n positional arguments. The parameter of is the name of the
// function that they are for.
func (a *arguments) after(n int, of string) *arguments {
	return &arguments{of: of, positional: a.positional[min(n, len(a.positional)):], names: slices.Clone(a.names), named: slices.Clone(a.named)}
}

// selected returns the items of v for which a test returns want. The test is applied to the item
// or, with byAttribute, to the attribute that the first argument names. The next argument names
// the test; without it, the truth of the value counts.
func (r *run) selected(v any, a *arguments, byAttribute, want bool) any {
	from, attribute := 0, any(nil)
	if byAttribute {
		attribute, from = a.need(0, ""), 1
	}
	test := func(x any) bool { return truth(x) }
	if len(a.positional) > from {
		name := asString(a.of, a.positional[from])
		f, ok := r.tests[name]
		if !ok {
			fail("%s with the test %q, which is not known", a.of, name)
		}
		test = func(x any) bool { return f(r, x, a.after(from+1, "test "+name)) }
	}
	out := &list{}
	if !truth(v) { // None, too
		v = out
	}
	for _, item := range r.items(v) {
		r.spend(1)
		if test(r.pick(item, attribute)) == want {
			out.items = append(out.items, item)
		}
	}
	a.taken, a.names = len(a.positional), nil
	return out
}

// sorted returns items sorted by the attribute that pick returns, in descending order with
// reverse. Text is compared without regard to case unless exact is set. The sort is stable.
func (r *run) sorted(items []any, attribute any, reverse, exact bool) []any {
	type keyed struct{ key, item any }
	r.spend(len(items))
	all := make([]keyed, len(items))
	for i, item := range items {
		all[i] = keyed{r.folded(r.pick(item, attribute), exact), item}
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		if reverse {
			a, b = b, a
		}
		return r.order("<", a.key, b.key, 0)
	})
	out := make([]any, len(all))
	for i := range all {
		out[i] = all[i].item
	}
	return out
}

func unique(r *run, v any, a *arguments) any {
	exact, attribute := truth(a.or(0, "case_sensitive", false)), a.or(1, "attribute", nil)
	seen, out := newDict(), &list{}
	for _, item := range r.items(v) {
		r.spend(1)
		key := r.folded(r.pick(item, attribute), exact)
		r.spendKey(key)
		if !hashable(key) {
			fail("unique of %s", described(key))
		}
		if _, ok := seen.get(key); !ok {
			seen.set(key, true)
			out.items = append(out.items, item)
		}
	}
	return out
}

func dictSort(r *run, v any, a *arguments) any {
	d, ok := v.(*dict)
	if !ok {
		fail("dictsort of %s", described(v))
	}
	r.spend(len(d.keys))
	exact, by, reverse := truth(a.or(0, "case_sensitive", false)), a.str(1, "by", "key"), truth(a.or(2, "reverse", false))
	at := slices.Index([]string{"key", "value"}, by)
	if at < 0 {
		fail("dictsort by %q; known are key and value", by)
	}
	pairs := dictMethods["items"](r, d, nil).(*list)
	return &list{items: r.sorted(pairs.items, int64(at), reverse, exact)}
}

func (r *run) extreme(v any, a *arguments, most bool) any {
	exact, attribute := truth(a.or(0, "case_sensitive", false)), a.or(1, "attribute", nil)
	items := r.items(v)
	if len(items) == 0 {
		return undefined{"an empty sequence has no least and no most"}
	}
	best := items[0]
	for _, item := range items[1:] {
		c := r.order("<", r.folded(r.pick(item, attribute), exact), r.folded(r.pick(best, attribute), exact), 0)
		if c > 0 && most || c < 0 && !most {
			best = item
		}
	}
	return best
}

// pick returns a part of v: for a text attribute the attribute with the path "a.b.0", for a
// number the item with that number, and for nil (None) v itself.
func (r *run) pick(v, attribute any) any {
	switch at := attribute.(type) {
	case nil:
		return v
	case string:
		r.spendText(len(at))
		for _, part := range strings.Split(at, ".") {
			if n, err := strconv.ParseInt(part, 10, 64); err == nil && n >= 0 {
				v = r.getItem(v, n)
			} else {
				v = r.getItem(v, part)
			}
		}
		return v
	}
	return r.getItem(v, attribute)
}

// folded returns text in lower case unless exact: Jinja ignores case in sorting and comparing
// by default.
func (r *run) folded(v any, exact bool) any {
	if s, ok := v.(string); ok && !exact {
		r.spendText(len(s))
		return strings.ToLower(s)
	}
	return v
}
