package chat

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/internal/bail"
)

// textMethod is a method of text; the receiver comes first.
type textMethod func(r *run, s string, a *arguments) any

// dictMethods are the methods of dictionaries.
var dictMethods = map[string]func(r *run, d *dict, a *arguments) any{
	"items": func(_ *run, d *dict, _ *arguments) any {
		out := &list{}
		for i, key := range d.keys {
			out.items = append(out.items, &list{tuple: true, items: []any{key, d.values[i]}})
		}
		return out
	},
	"keys":   func(_ *run, d *dict, _ *arguments) any { return &list{items: d.keys} },
	"values": func(_ *run, d *dict, _ *arguments) any { return &list{items: d.values} },
	"copy":   func(_ *run, d *dict, _ *arguments) any { return d },
	"get": func(r *run, d *dict, a *arguments) any {
		key, other := a.need(0, ""), a.or(1, "", nil)
		if !hashable(key) {
			fail("%s can't be a key", described(key))
		}
		r.spendKey(key)
		if v, ok := d.get(key); ok {
			return v
		}
		return other
	},
}

// listChanges and dictChanges are Python's methods that change the value, which the sandbox
// hides from templates.
var (
	listChanges = []string{"append", "extend", "insert", "pop", "remove", "clear", "reverse", "sort"}
	dictChanges = []string{"update", "setdefault", "popitem", "pop", "clear"}
)

// missingText and the following are Python's methods that this package lacks. Treating them as
// undefined could silently change a prompt.
var (
	missingText = []string{
		"casefold", "center", "encode", "expandtabs", "format_map", "isascii", "isidentifier", "isprintable", "istitle",
		"ljust", "maketrans", "rindex", "rjust", "swapcase", "translate", "zfill",
	}
	missingNumber = []string{
		"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes", "fromhex", "hex", "imag",
		"is_integer", "numerator", "real", "to_bytes",
	}
)

// methodOf returns the method or attribute v.name of v's type, which has precedence over an
// item; false if the type has none of that name.
func (r *run) methodOf(v any, name string) (any, bool) {
	has, changes, missing := false, []string(nil), []string(nil)
	switch v.(type) {
	case string:
		_, has = r.textMethods[name]
		missing = missingText
	case *dict:
		_, has = dictMethods[name]
		changes, missing = dictChanges, []string{"fromkeys"}
	case *list:
		has = name == "index" || name == "count"
		changes, missing = listChanges, []string{"copy"}
	case int64, float64, bool, wide:
		missing = missingNumber
	}
	switch {
	case has:
		return method{v, name}, true
	case slices.Contains(changes, name):
		return undefined{fmt.Sprintf("%s.%s changes its value, which templates may not", typeName(v), name)}, true
	case slices.Contains(missing, name):
		bail.Out(fmt.Errorf("%w: %s.%s", ErrUnsupported, typeName(v), name))
	}
	return nil, false
}

func (m method) call(r *run, a *arguments) any {
	a.of = typeName(m.of) + "." + m.name
	var out any
	switch of := m.of.(type) {
	case string:
		out = r.textMethods[m.name](r, of, a)
	case *loop:
		return of.call(r, m.name, a)
	case *dict:
		r.spend(len(of.keys))
		out = dictMethods[m.name](r, of, a)
	case *list:
		out = r.searchList(of, m.name, a.need(0, ""))
	}
	a.done()
	return out
}

func (r *run) searchList(l *list, name string, v any) any {
	n := int64(0)
	for i, item := range l.items {
		if r.equal(item, v, 0) {
			if name == "index" {
				return int64(i)
			}
			n++
		}
	}
	if name == "index" {
		fail("the value is not in the list")
	}
	return n
}

// call implements loop.cycle and loop.changed.
func (l *loop) call(r *run, name string, a *arguments) any {
	if name == "cycle" {
		if len(a.positional) == 0 {
			fail("loop.cycle needs values")
		}
		return a.positional[l.at%len(a.positional)]
	}
	same := l.changed != nil && r.equal(&list{items: l.changed}, &list{items: a.positional}, 0)
	l.changed = a.positional
	return !same
}

func textMethods() map[string]textMethod {
	all := map[string]textMethod{
		"upper":      plain(upper),
		"lower":      plain(strings.ToLower),
		"title":      plain(title),
		"capitalize": plain(capitalize),
		"strip":      func(r *run, s string, a *arguments) any { return r.strip(s, a, true, true) },
		"lstrip":     func(r *run, s string, a *arguments) any { return r.strip(s, a, true, false) },
		"rstrip":     func(r *run, s string, a *arguments) any { return r.strip(s, a, false, true) },
		"split":      func(r *run, s string, a *arguments) any { return r.split(s, a, false) },
		"rsplit":     func(r *run, s string, a *arguments) any { return r.split(s, a, true) },
		"splitlines": splitLines,
		"startswith": func(r *run, s string, a *arguments) any { return r.anyOf(a, s, strings.HasPrefix) },
		"endswith":   func(r *run, s string, a *arguments) any { return r.anyOf(a, s, strings.HasSuffix) },
		"replace":    replace,
		"format":     format,
		"join":       func(r *run, s string, a *arguments) any { return r.join(a.need(0, "iterable"), s, true) },
		"count":      func(r *run, s string, a *arguments) any { return countOf(s, asString(a.of, a.need(0, ""))) },
		"find":       func(r *run, s string, a *arguments) any { return find(s, a, strings.Index) },
		"rfind":      func(r *run, s string, a *arguments) any { return find(s, a, strings.LastIndex) },
		"index":      func(r *run, s string, a *arguments) any { return found(find(s, a, strings.Index)) },
		"isdigit":    plainTest(unicode.IsDigit),
		"isdecimal":  plainTest(unicode.IsDigit),
		"isnumeric":  plainTest(unicode.IsNumber),
		"isalpha":    plainTest(unicode.IsLetter),
		"isalnum":    plainTest(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }),
		"isspace":    plainTest(isSpace),
		"isupper":    func(r *run, s string, a *arguments) any { return cased(s, strings.ToUpper(s)) },
		"islower":    func(r *run, s string, a *arguments) any { return cased(s, strings.ToLower(s)) },
		"removeprefix": func(r *run, s string, a *arguments) any {
			return strings.TrimPrefix(s, asString(a.of, a.need(0, "")))
		},
		"removesuffix": func(r *run, s string, a *arguments) any {
			return strings.TrimSuffix(s, asString(a.of, a.need(0, "")))
		},
		"partition":  func(r *run, s string, a *arguments) any { return partition(s, a, strings.Index) },
		"rpartition": func(r *run, s string, a *arguments) any { return partition(s, a, strings.LastIndex) },
	}
	for name, f := range all {
		all[name] = func(r *run, s string, a *arguments) any {
			r.spendText(len(s))
			return f(r, s, a)
		}
	}
	return all
}

func plain(f func(string) string) func(*run, string, *arguments) any {
	return func(r *run, s string, _ *arguments) any { return r.grown(s, f(s)) }
}

// plainTest returns true for non-empty text if f is true for all its runes.
func plainTest(f func(rune) bool) func(*run, string, *arguments) any {
	return func(_ *run, s string, _ *arguments) any {
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !f(c) }) < 0
	}
}

// cased reports whether s has letters and equals same. same is s converted to upper or to lower
// case.
func cased(s, same string) bool {
	return s == same && strings.IndexFunc(s, func(c rune) bool { return unicode.IsUpper(c) || unicode.IsLower(c) }) >= 0
}

// grown are the letters whose upper case has several letters, as far as they are in use.
var grown = strings.NewReplacer("ß", "SS", "ﬀ", "FF", "ﬁ", "FI", "ﬂ", "FL", "ﬃ", "FFI", "ﬄ", "FFL", "ﬅ", "ST", "ﬆ", "ST", "ŉ", "ʼN")

func upper(s string) string { return strings.ToUpper(grown.Replace(s)) }

// title converts every letter that does not follow a letter to upper case, and the others to
// lower case.
func title(s string) string {
	inWord := false
	return strings.Map(func(c rune) rune {
		was := inWord
		inWord = unicode.IsLetter(c)
		if was {
			return unicode.ToLower(c)
		}
		return unicode.ToTitle(c)
	}, s)
}

func capitalize(s string) string {
	c, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	return string(unicode.ToTitle(c)) + strings.ToLower(s[n:])
}

func (r *run) strip(s string, a *arguments, left, right bool) any {
	is := isSpace
	r.spendText(len(s))
	if chars := a.or(0, "chars", nil); chars != nil {
		set := asString(a.of, chars)
		r.spendText(product(len(s), int64(len(set))))
		is = func(c rune) bool { return strings.ContainsRune(set, c) }
	}
	if left {
		s = strings.TrimLeftFunc(s, is)
	}
	if right {
		s = strings.TrimRightFunc(s, is)
	}
	return s
}

// anyOf implements startswith and endswith, which take a text or a tuple of texts.
func (r *run) anyOf(a *arguments, s string, is func(s, part string) bool) any {
	v := a.need(0, "")
	if l, ok := v.(*list); ok && l.tuple {
		r.spend(len(l.items))
		return slices.ContainsFunc(l.items, func(p any) bool { return is(s, asString(a.of, p)) })
	}
	return is(s, asString(a.of, v))
}

func replace(r *run, s string, a *arguments) any {
	old, by := asString(a.of, a.need(0, "old")), asString(a.of, a.need(1, "new"))
	most := a.or(2, "count", int64(-1))
	if most == nil {
		most = int64(-1)
	}
	n := asInt(a.of, most)
	if n < 0 || n > int64(len(s))+1 {
		n = int64(len(s)) + 1
	}
	r.spendText(len(s))
	r.room(len(s), product(len(by), min(n, int64(strings.Count(s, old)))))
	return strings.Replace(s, old, by, int(n))
}

func countOf(s, part string) any { return int64(strings.Count(s, part)) }

// find returns the position in s, in characters, of the text that is the first argument, or -1.
// index is strings.Index or strings.LastIndex.
func find(s string, a *arguments, index func(s, part string) int) any {
	i := index(s, asString(a.of, a.need(0, "")))
	if i < 0 {
		return int64(-1)
	}
	return int64(utf8.RuneCountInString(s[:i]))
}

func found(at any) any {
	if at == int64(-1) {
		fail("the text to look for is not there")
	}
	return at
}

func partition(s string, a *arguments, index func(s, part string) int) any {
	by := asString(a.of, a.need(0, ""))
	i := index(s, by)
	switch {
	case by == "":
		fail("%s by empty text", a.of)
	case i >= 0:
		return &list{tuple: true, items: []any{s[:i], by, s[i+len(by):]}}
	case strings.HasSuffix(a.of, "rpartition"):
		return &list{tuple: true, items: []any{"", "", s}}
	}
	return &list{tuple: true, items: []any{s, "", ""}}
}

// format implements str.format for fields without a conversion or a format: {}, {0} and {name}.
func format(r *run, s string, a *arguments) any {
	var b strings.Builder
	next, values := 0, map[string]any{}
	for i, v := range a.positional {
		values[strconv.Itoa(i)] = v
	}
	for i, name := range a.names {
		values[name] = a.named[i]
	}
	a.taken, a.names = len(a.positional), nil
	for s != "" {
		at := strings.IndexAny(s, "{}")
		if at < 0 {
			at = len(s)
		}
		r.add(&b, s[:at])
		if s = s[at:]; s == "" {
			break
		}
		if strings.HasPrefix(s, "{{") || strings.HasPrefix(s, "}}") {
			b.WriteByte(s[0])
			s = s[2:]
			continue
		}
		name, rest, ok := strings.Cut(s[1:], "}")
		if s[0] == '}' || !ok {
			fail("the format has a single %q", s[:1])
		}
		if strings.ContainsAny(name, "!:.[{") {
			bail.Out(fmt.Errorf("%w: str.format of {%s}", ErrUnsupported, name))
		}
		if name == "" {
			name = strconv.Itoa(next)
			next++
		}
		v, ok := values[name]
		if !ok {
			fail("the format wants a value for {%s}", name)
		}
		part := r.text(v)
		r.add(&b, part)
		s = rest
	}
	return b.String()
}

// percent implements s % v for %s, %d, %i, %r and %%.
func (r *run) percent(s string, v any) any {
	values, all := []any{v}, true // whether all values must be used; lists and dictionaries need not be
	switch v := v.(type) {
	case *list:
		if all = v.tuple; all {
			values = v.items
		}
	case *dict:
		all = false
	}
	var b strings.Builder
	r.spendText(len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		i++
		if i == len(s) || !strings.ContainsRune("sdir%", rune(s[i])) {
			fail("the format %.100q; known are %%s, %%d, %%i, %%r and %%%%", s)
		}
		if s[i] == '%' {
			b.WriteByte('%')
			continue
		}
		if len(values) == 0 {
			fail("the format %.100q wants more values", s)
		}
		part := ""
		switch s[i] {
		case 's':
			part = r.text(values[0])
		case 'r':
			part = r.repr(values[0])
		default:
			part = fmt.Sprint(asInt("%d", values[0]))
		}
		r.add(&b, part)
		values = values[1:]
	}
	if all && len(values) > 0 {
		fail("the format %.100q wants fewer values", s)
	}
	return b.String()
}
