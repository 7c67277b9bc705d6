package chat

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// filter implements the expression v|name(a).
type filter func(r *run, v any, a *arguments) any

// filters returns all filters by name.
func filters() map[string]filter {
	all := map[string]filter{
		"tojson":  toJSON,
		"default": defaultTo, "d": defaultTo,
		"length": length, "count": length,
		"join": func(r *run, v any, a *arguments) any {
			by := a.str(0, "d", "")
			if attribute, ok := a.take(1, "attribute"); ok && attribute != nil {
				v = &list{items: r.picked(v, attribute)}
			}
			return r.join(v, by, false)
		},
		"list":       func(r *run, v any, a *arguments) any { return &list{items: r.copied(v)} },
		"string":     func(r *run, v any, a *arguments) any { return r.text(v) },
		"trim":       func(r *run, v any, a *arguments) any { return r.strip(r.text(v), a, true, true) },
		"upper":      onText(upper),
		"lower":      onText(strings.ToLower),
		"capitalize": onText(capitalize),
		"title":      onText(titleWords),
		"escape":     escapeText,
		"e":          escapeText,
		"safe":       onText(func(s string) string { return s }),
		"replace": func(r *run, v any, a *arguments) any {
			s := r.text(v)
			return replace(r, s, a)
		},
		"indent": indent,
		"first":  func(r *run, v any, _ *arguments) any { return r.end(v, 0, "first") },
		"last":   func(r *run, v any, _ *arguments) any { return r.end(v, -1, "last") },
		"items": func(r *run, v any, a *arguments) any {
			if _, ok := v.(undefined); ok {
				return &list{}
			}
			d, ok := v.(*dict)
			if !ok {
				fail("%s has no items", described(v))
			}
			return method{d, "items"}.call(r, a)
		},
		"reverse": func(r *run, v any, _ *arguments) any {
			items := r.copied(v)
			slices.Reverse(items)
			if _, ok := v.(string); ok {
				return r.join(&list{items: items}, "", false)
			}
			return &list{items: items}
		},
		"int": toInt, "float": toFloat, "abs": absolute, "round": round,
		"sort": func(r *run, v any, a *arguments) any {
			reverse, exact := truth(a.or(0, "reverse", false)), truth(a.or(1, "case_sensitive", false))
			return &list{items: r.sorted(r.items(v), a.or(2, "attribute", nil), reverse, exact)}
		},
		"unique": unique, "dictsort": dictSort,
		"min":        func(r *run, v any, a *arguments) any { return r.extreme(v, a, false) },
		"max":        func(r *run, v any, a *arguments) any { return r.extreme(v, a, true) },
		"sum":        sum,
		"map":        mapItems,
		"select":     func(r *run, v any, a *arguments) any { return r.selected(v, a, false, true) },
		"reject":     func(r *run, v any, a *arguments) any { return r.selected(v, a, false, false) },
		"selectattr": func(r *run, v any, a *arguments) any { return r.selected(v, a, true, true) },
		"rejectattr": func(r *run, v any, a *arguments) any { return r.selected(v, a, true, false) },
		"attr":       func(r *run, v any, a *arguments) any { return r.getAttribute(v, a.str(0, "name", "")) },
	}
	for name, f := range all {
		all[name] = func(r *run, v any, a *arguments) any {
			out := f(r, v, a)
			a.done()
			return out
		}
	}
	return all
}

// onText makes a filter of a function on text; other values are converted to text first.
func onText(f func(s string) string) filter {
	return func(r *run, v any, _ *arguments) any {
		s := r.text(v)
		r.spendText(len(s))
		return r.grown(s, f(s))
	}
}

// htmlEscapes are pairs of a character and its escape.
var (
	htmlEscapes = []string{"&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;"}
	escapeHTML  = strings.NewReplacer(htmlEscapes...)
)

func escapeText(r *run, v any, _ *arguments) any {
	s := r.text(v)
	n := len(s)
	for i := 0; i < len(htmlEscapes); i += 2 {
		n += strings.Count(s, htmlEscapes[i]) * (len(htmlEscapes[i+1]) - 1)
	}
	r.room(0, n)
	return escapeHTML.Replace(s)
}

// titleWords implements the filter title. Unlike in str.title, words begin after white space,
// hyphens and opening brackets.
func titleWords(s string) string {
	var b strings.Builder
	start := 0
	for i, c := range s {
		if isSpace(c) || strings.ContainsRune("-({[<", c) {
			b.WriteString(capitalize(s[start:i]))
			b.WriteRune(c)
			start = i + utf8.RuneLen(c)
		}
	}
	b.WriteString(capitalize(s[start:]))
	return b.String()
}

// toJSON implements Hugging Face's tojson: json.dumps with ensure_ascii false.
func toJSON(r *run, v any, a *arguments) any {
	s := style{json: true, item: ", ", key: ": "}
	s.ascii = truth(a.or(0, "ensure_ascii", false))
	switch in := a.or(1, "indent", nil).(type) {
	case nil:
	case string:
		s.indent, s.lines, s.item = in, true, ","
	default:
		n := max(asInt(a.of, in), 0)
		r.room(0, int(min(n, math.MaxInt32)))
		s.indent, s.lines, s.item = strings.Repeat(" ", int(min(n, math.MaxInt32))), true, ","
	}
	if sep, ok := a.or(2, "separators", nil).(*list); ok {
		if len(sep.items) != 2 {
			fail("tojson wants two separators")
		}
		s.item, s.key = asString(a.of, sep.items[0]), asString(a.of, sep.items[1])
	}
	s.sortedKeys = truth(a.or(3, "sort_keys", false))
	var b strings.Builder
	r.format(&b, v, &s, 0)
	return b.String()
}

func defaultTo(r *run, v any, a *arguments) any {
	other, falsy := a.or(0, "default_value", ""), truth(a.or(1, "boolean", false))
	if _, ok := v.(undefined); ok || falsy && !truth(v) {
		return other
	}
	return v
}

func length(r *run, v any, _ *arguments) any {
	switch v := v.(type) {
	case string:
		r.spendText(len(v))
		return int64(utf8.RuneCountInString(v))
	case *list:
		return int64(len(v.items))
	case *dict:
		return int64(len(v.keys))
	case undefined:
		return int64(0)
	}
	fail("%s has no length", described(v))
	return nil
}

// join returns the items of v as one text, with by between them. It fails for an item that is not
// text if strict is set, as str.join does; otherwise it converts the item to text.
func (r *run) join(v any, by string, strict bool) string {
	var b strings.Builder
	for i, item := range r.items(v) {
		s, ok := item.(string)
		if !ok {
			if strict {
				fail("join of %s", described(item))
			}
			s = r.text(item)
		}
		if i > 0 {
			r.add(&b, by)
		}
		r.add(&b, s)
	}
	return b.String()
}

// copied returns the items of v in a new slice.
func (r *run) copied(v any) []any {
	items := r.items(v)
	r.spend(len(items))
	return slices.Clone(items)
}

// end returns the first item of v if at is 0, or the last one if at is -1. For an empty v it
// returns undefined; which is "first" or "last", for the text of that value.
func (r *run) end(v any, at int, which string) any {
	items := r.items(v)
	if len(items) == 0 {
		return undefined{"an empty sequence has no " + which + " item"}
	}
	if at < 0 {
		at = len(items) - 1
	}
	return items[at]
}

func indent(r *run, v any, a *arguments) any {
	s := asString(a.of, v)
	by := ""
	switch w := a.or(0, "width", int64(4)).(type) {
	case string:
		by = w
	default:
		n := max(asInt(a.of, w), 0)
		r.room(0, product(1, n))
		by = strings.Repeat(" ", int(n))
	}
	first, blank := truth(a.or(1, "first", false)), truth(a.or(2, "blank", false))
	lines := splitLines(r, s+"\n", &arguments{}).(*list).items
	var b strings.Builder
	for i, item := range lines {
		line := item.(string)
		if i > 0 {
			r.add(&b, "\n")
		}
		if i == 0 && first || i > 0 && (blank || line != "") {
			r.add(&b, by)
		}
		r.add(&b, line)
	}
	return b.String()
}

func toInt(r *run, v any, a *arguments) any {
	other := a.or(0, "default", int64(0))
	a.or(1, "base", nil)
	switch v := v.(type) {
	case undefined:
		fail("int of %s", described(v))
	case int64, bool:
		return asInt("int", v)
	case float64:
		if math.Abs(v) < 1<<63 {
			return int64(v)
		}
	case string:
		r.spendText(len(v))
		s := strings.TrimFunc(v, isSpace)
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return n
		}
		if f, err := strconv.ParseFloat(s, 64); err == nil && math.Abs(f) < 1<<63 {
			return int64(f)
		}
	}
	return other
}

func toFloat(r *run, v any, a *arguments) any {
	other := a.or(0, "default", 0.0)
	if s, ok := v.(string); ok {
		r.spendText(len(s))
		if f, err := strconv.ParseFloat(strings.TrimFunc(s, isSpace), 64); err == nil {
			return f
		}
		return other
	}
	if isNumber(v) {
		return asFloat(v)
	}
	if isType[undefined](v) {
		fail("float of %s", described(v))
	}
	return other
}

func absolute(r *run, v any, _ *arguments) any {
	if f, ok := v.(float64); ok {
		return math.Abs(f)
	}
	n := asInt("abs", v)
	if n < 0 {
		return r.arithmetic("-", int64(0), n)
	}
	return n
}

// round implements Jinja's round; common rounds halves to even, like Python's round.
func round(r *run, v any, a *arguments) any {
	if !isNumber(v) {
		fail("round of %s", described(v))
	}
	digits, how := a.integer(0, "precision", 0), a.str(1, "method", "common")
	if digits < -300 || digits > 300 {
		fail("round to %d digits", digits)
	}
	f, scale := asFloat(v), math.Pow(10, float64(digits))
	switch how {
	case "ceil":
		return math.Ceil(f*scale) / scale
	case "floor":
		return math.Floor(f*scale) / scale
	case "common":
		if isInt(v) {
			return roundInt(asInt(a.of, v), -digits)
		}
		if digits < 0 {
			return math.RoundToEven(f*scale) / scale
		}
		out, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(digits), 64), 64)
		return out
	}
	fail("round by %q; known are common, ceil and floor", how)
	return nil
}

// roundInt rounds n to a multiple of 10 ** digits, halves to even. With digits of 0 or less it
// returns n.
func roundInt(n, digits int64) any {
	if digits <= 0 {
		return n
	}
	if digits > 18 {
		return int64(0)
	}
	unit := power(10, digits).(int64)
	down := integers("//", n, unit).(int64)
	if rest := n - down*unit; rest > unit-rest || rest == unit-rest && down%2 != 0 {
		down++
	}
	return integers("*", down, unit)
}

func sum(r *run, v any, a *arguments) any {
	attribute := a.or(0, "attribute", nil)
	total := a.or(1, "start", int64(0))
	for _, item := range r.picked(v, attribute) {
		total = r.arithmetic("+", total, item)
	}
	return total
}
