package chat

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/internal/bail"
)

func (l *literal) eval(*run, *scope) any { return l.value }

func (n *name) eval(r *run, s *scope) any {
	for ; s != nil; s = s.parent {
		if s.names == nil {
			continue
		}
		if v, ok := s.names[n.name]; ok {
			return v
		}
		r.spend(1)
	}
	if n.name == "strftime_now" {
		return undefined{"strftime_now is undefined; Options.Now sets the time for it"}
	}
	return undefined{fmt.Sprintf("%q is undefined", n.name)} // not long: see maxName
}

func (q *sequence) eval(r *run, s *scope) any {
	out := &list{tuple: q.tuple, items: make([]any, len(q.items))}
	for i, e := range q.items {
		out.items[i] = r.eval(e, s)
	}
	return out
}

func (m *mapping) eval(r *run, s *scope) any {
	out := newDict()
	r.spend(dictSteps * (1 + len(m.keys)))
	for i, e := range m.keys {
		key := r.eval(e, s)
		if !hashable(key) {
			fail("%s can't be a key", described(key))
		}
		r.spendKey(key)
		out.set(key, r.eval(m.values[i], s))
	}
	return out
}

func (c *conditional) eval(r *run, s *scope) any {
	if truth(r.eval(c.test, s)) {
		return r.eval(c.yes, s)
	}
	if c.no == nil {
		return undefined{"the condition has no else"}
	}
	return r.eval(c.no, s)
}

func (l *logic) eval(r *run, s *scope) any {
	if left := r.eval(l.left, s); truth(left) == l.or {
		return left
	}
	return r.eval(l.right, s)
}

func (c *compare) eval(r *run, s *scope) any {
	left := r.eval(c.first, s)
	for i, op := range c.ops {
		right := r.eval(c.rest[i], s)
		if !r.compare(op, left, right) {
			return false
		}
		left = right
	}
	return true
}

func (u *unary) eval(r *run, s *scope) any {
	v := r.eval(u.of, s)
	if u.op == "not" {
		return !truth(v)
	}
	switch n := v.(type) {
	case float64:
		if u.op == "-" {
			return -n
		}
		return n
	case int64, bool:
		if u.op == "-" {
			return r.arithmetic("-", int64(0), asInt("-", n))
		}
		return asInt("+", n)
	}
	fail("%s of %s", u.op, described(v))
	return nil
}

func (b *binary) eval(r *run, s *scope) any {
	left, right := r.eval(b.left, s), r.eval(b.right, s)
	if b.op == "~" {
		l, t := r.text(left), r.text(right)
		r.room(len(l), len(t))
		r.spendText(len(l))
		return l + t
	}
	return r.arithmetic(b.op, left, right)
}

func (c *call) eval(r *run, s *scope) any {
	f := r.eval(c.of, s)
	a := r.arguments(&c.args, s)
	switch f := f.(type) {
	case function:
		return f(r, a)
	case method:
		return f.call(r, a)
	case *macro:
		return f.call(r, a)
	}
	fail("%s can't be called", described(f))
	return nil
}

func (f *filterCall) eval(r *run, s *scope) any {
	v := r.eval(f.of, s)
	a := r.arguments(&f.args, s)
	a.of = "filter " + f.name
	return r.filter(f.name)(r, v, a)
}

func (r *run) filter(name string) filter {
	f := r.filters[name]
	if f == nil {
		bail.Out(fmt.Errorf("%w: the filter %q", ErrUnsupported, name))
	}
	return f
}

func (t *testCall) eval(r *run, s *scope) any {
	v := r.eval(t.of, s)
	a := r.arguments(&t.args, s)
	a.of = "test " + t.name
	return r.tests[t.name](r, v, a)
}

func (a *attribute) eval(r *run, s *scope) any { return r.getAttribute(r.eval(a.of, s), a.name) }

func (i *item) eval(r *run, s *scope) any {
	return r.getItem(r.eval(i.of, s), r.eval(i.key, s))
}

// getItem returns v[key]: an item, else an attribute.
func (r *run) getItem(v, key any) any {
	r.spendKey(key)
	switch v := v.(type) {
	case undefined:
		fail("%s, so it has no items", v.why)
	case *dict:
		if f, ok := v.get(key); ok {
			return f
		}
	case *list:
		if n, ok := key.(int64); ok {
			if n < 0 {
				n += int64(len(v.items))
			}
			if 0 <= n && n < int64(len(v.items)) {
				return v.items[n]
			}
			return undefined{fmt.Sprintf("item %d of %d", key, len(v.items))}
		}
	case string:
		if n, ok := key.(int64); ok {
			return r.character(v, n)
		}
	}
	if name, ok := key.(string); ok {
		return r.getAttribute(v, name)
	}
	return undefined{fmt.Sprintf("a value of type %s has no such item", typeName(v))}
}

// getAttribute returns v.name: a method if the type has it, else an item.
func (r *run) getAttribute(v any, name string) any {
	switch v := v.(type) {
	case undefined:
		fail("%s, so it has no attribute %q", v.why, name)
	case *loop:
		return v.attribute(name)
	case *namespace:
		if f, ok := v.fields.get(name); ok {
			return f
		}
	default:
		if m, ok := r.methodOf(v, name); ok {
			return m
		}
		if d, ok := v.(*dict); ok {
			if f, ok := d.get(name); ok {
				return f
			}
		}
	}
	return undefined{fmt.Sprintf("a value of type %s has no attribute %q", typeName(v), name)}
}

func (r *run) character(s string, n int64) any {
	r.spendText(len(s))
	if n < 0 {
		n += int64(utf8.RuneCountInString(s))
	}
	for _, c := range s {
		if n == 0 {
			return string(c)
		}
		n--
	}
	return undefined{"a character beyond the text"}
}

func (x *slice) eval(r *run, s *scope) any {
	v := r.eval(x.of, s)
	bound := func(e expr) *int64 {
		if e == nil {
			return nil
		}
		v := r.eval(e, s)
		if v == nil {
			return nil
		}
		n := asInt("a slice", v)
		return &n
	}
	start, stop, step := bound(x.start), bound(x.stop), bound(x.step)
	switch v := v.(type) {
	case *list:
		out := &list{tuple: v.tuple}
		r.sliced(len(v.items), start, stop, step, func(i int) { out.items = append(out.items, v.items[i]) })
		return out
	case string:
		r.spendText(runeBytes * len(v))
		runes := []rune(v)
		var b strings.Builder
		r.sliced(len(runes), start, stop, step, func(i int) { b.WriteRune(runes[i]) })
		return b.String()
	case undefined:
		fail("%s, so it can't be sliced", v.why)
	}
	fail("%s can't be sliced", described(v))
	return nil
}

// runeBytes is the size of a rune in a list of runes.
const runeBytes = 4

// sliced calls take with each index that the slice [start:stop:step] selects of n items, in
// order. A bound that the template omits is nil. It fails if step is 0.
func (r *run) sliced(n int, start, stop, step *int64, take func(i int)) {
	by := int64(1)
	if step != nil {
		by = *step
	}
	if by == 0 {
		fail("a slice with step 0")
	}
	// For a negative step the bounds are one lower: -1 is the position before the first item.
	low, high := int64(0), int64(n)
	if by < 0 {
		low, high = -1, int64(n)-1
	}
	clamp := func(b *int64, other int64) int64 {
		if b == nil {
			return other
		}
		i := *b
		if i < 0 {
			i += int64(n)
		}
		return max(low, min(high, i))
	}
	from, to := clamp(start, low), clamp(stop, high)
	if by < 0 {
		from, to = clamp(start, high), clamp(stop, low)
	}
	by = max(-int64(n)-1, min(int64(n)+1, by))
	for i := from; by > 0 && i < to || by < 0 && i > to; i += by {
		r.spend(1)
		take(int(i))
	}
}

// items returns the items that a loop over v visits: of a dictionary the keys, of text the
// characters. It fails if v can't be looped over. The caller must not change the slice.
func (r *run) items(v any) []any {
	switch v := v.(type) {
	case undefined:
		return nil
	case *list:
		return v.items
	case *dict:
		return v.keys
	case string:
		r.spend(len(v))
		out := make([]any, 0, len(v))
		for _, c := range v {
			out = append(out, string(c))
		}
		return out
	}
	fail("%s can't be looped over", described(v))
	return nil
}
