package chat

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strings"
)

const (
	systemRole    = "system"
	userRole      = "user"
	assistantRole = "assistant"
	toolRole      = "tool"
	callsKey      = "tool_calls"
)

// adapt changes a caller's values as p says. now is the text of the time. The marks of control tokens are in
// the values already: the words that adapt adds are the server's, and a control token in them counts as one.
func (r *run) adapt(p plan, given map[string]any, now string) {
	tools, _ := given["tools"].(*list)
	if p.functions {
		r.functions(given, tools, now)
	}
	switch {
	case p.tools:
		given["tools"] = nil
	case p.fill && tools != nil:
		given["tools"] = r.filled(tools)
	}
	if p.empty && given["tools"] == nil {
		given["tools"] = &list{}
	}
	if p.tools || p.calls || p.results || p.single || p.text || p.short {
		given["messages"] = &list{items: r.turns(p, given["messages"].(*list).items, tools)}
	}
}

// turns returns the messages, changed as p says.
func (r *run) turns(p plan, messages []any, tools *list) []any {
	out := make([]any, 0, len(messages)+1)
	ours := false // the last turn of out was made of results
	for rest := messages; len(rest) > 0; {
		m := rest[0].(*dict)
		rest = rest[1:]
		calls := callsOf(m)
		if len(calls) == 0 && roleOf(m) != toolRole {
			if last := len(out) - 1; ours && roleOf(m) == userRole { // some templates demand that user and assistant take turns
				out[last] = r.replaced(m, contentKey, r.before(at(out[last].(*dict), contentKey).(string), "\n\n", at(m, contentKey)))
			} else {
				out = append(out, m)
			}
			ours = false
			continue
		}
		n := 0
		for n < len(rest) && roleOf(rest[n].(*dict)) == toolRole {
			n++
		}
		if len(calls) == 0 { // results without their calls
			out = r.addCalls(p, out, nil, append([]any{m}, rest[:n]...))
		} else {
			out = r.addCalls(p, out, m, rest[:n])
		}
		ours = p.results && (n > 0 || len(calls) == 0)
		rest = rest[n:]
	}
	if p.tools {
		return r.instruct(p, out, tools)
	}
	return out
}

// addCalls appends m, a message with calls or nil, and the results that follow it.
func (r *run) addCalls(p plan, out []any, m *dict, results []any) []any {
	r.spend(dictSteps * (1 + len(results)))
	var calls []any
	if m != nil {
		calls = callsOf(m)
	}
	if p.results || p.single { // the results in the order of the calls
		results = slices.Clone(results)
		slices.SortStableFunc(results, func(a, b any) int { return cmp.Compare(callOf(calls, a.(*dict)), callOf(calls, b.(*dict))) })
	}
	switch {
	case m == nil:
	case p.calls:
		out = append(out, r.withoutCalls(m, calls))
	case p.single && len(calls) > 1:
		return r.apart(p, out, m, calls, results)
	default:
		out = append(out, r.withCalls(p, m, calls))
	}
	return r.addResults(p, out, results)
}

// apart appends a message for each of several calls, followed by its results. The content stays before the
// first call. Results that belong to no call follow the last one.
func (r *run) apart(p plan, out []any, m *dict, calls, results []any) []any {
	for i, call := range calls {
		n := 0
		for n < len(results) && (callOf(calls, results[n].(*dict)) <= i || i == len(calls)-1) {
			n++
		}
		one := m
		if i > 0 {
			one = newDict()
			one.set("role", assistantRole)
			one.set(contentKey, "")
		}
		r.spend(dictSteps * len(m.keys))
		out = r.addResults(p, append(out, r.withCalls(p, one, []any{call})), results[:n])
		results = results[n:]
	}
	return out
}

// callOf returns the index of the call that a result answers, len(calls) if it answers none.
func callOf(calls []any, result *dict) int {
	id, _ := result.get("tool_call_id")
	i := slices.IndexFunc(calls, func(c any) bool {
		d, ok := c.(*dict)
		return ok && id != nil && id == at(d, "id")
	})
	if i < 0 {
		return len(calls)
	}
	return i
}

// withCalls returns m with these calls, in the form that the template takes.
func (r *run) withCalls(p plan, m *dict, calls []any) *dict {
	all := &list{}
	for _, c := range calls {
		d, ok := c.(*dict)
		if ok && p.short && at(d, "id") != nil {
			d = r.replaced(d, "id", r.shortID(at(d, "id")))
		}
		if f, is := at(d, "function").(*dict); ok && is && p.text {
			if arguments, is := at(f, "arguments").(*dict); is {
				d = r.replaced(d, "function", r.replaced(f, "arguments", r.json(arguments)))
			}
		}
		if ok {
			c = d
		}
		all.items = append(all.items, c)
	}
	return r.replaced(m, callsKey, all)
}

// withoutCalls returns m with its calls as text after its content.
func (r *run) withoutCalls(m *dict, calls []any) *dict {
	var b strings.Builder
	for i, c := range calls {
		if i > 0 {
			r.add(&b, "\n")
		}
		d, _ := c.(*dict)
		f, _ := at(d, "function").(*dict)
		r.add(&b, callOpen)
		r.format(&b, at(f, "name"), asJSON, 0)
		r.add(&b, callArguments)
		r.format(&b, at(f, "arguments"), asJSON, 0)
		r.add(&b, callClose)
	}
	out := newDict()
	for i, key := range m.keys {
		if key != callsKey {
			out.set(key, m.values[i])
		}
	}
	out.set(contentKey, r.after(at(m, contentKey), "\n", b.String()))
	return out
}

// addResults appends results: as they are, or as one turn of the user.
func (r *run) addResults(p plan, out, results []any) []any {
	if len(results) == 0 {
		return out
	}
	if !p.results {
		for _, m := range results {
			if d := m.(*dict); p.short && at(d, "tool_call_id") != nil {
				m = r.replaced(d, "tool_call_id", r.shortID(at(d, "tool_call_id")))
			}
			out = append(out, m)
		}
		return out
	}
	var b strings.Builder
	for i, m := range results {
		if i > 0 {
			r.add(&b, "\n")
		}
		r.add(&b, resultOpen)
		r.add(&b, r.plain(at(m.(*dict), contentKey)))
		r.add(&b, resultClose)
	}
	return append(out, message(userRole, b.String()))
}

func message(role, content string) any {
	d := newDict()
	d.set("role", role)
	d.set(contentKey, content)
	return d
}

var asJSON = &style{json: true, item: ", ", key: ": "}

func (r *run) json(v any) string {
	var b strings.Builder
	r.format(&b, v, asJSON, 0)
	return b.String()
}

// at returns a value of a dictionary, nil if it has none or d is nil.
func at(d *dict, key string) any {
	if d == nil {
		return nil
	}
	v, _ := d.get(key)
	return v
}

func roleOf(m *dict) any { return at(m, "role") }

// callsOf returns the calls of a message.
func callsOf(m *dict) []any {
	if l, ok := at(m, callsKey).(*list); ok {
		return l.items
	}
	return nil
}

// replaced returns a copy of d with another value of key.
func (r *run) replaced(d *dict, key string, v any) *dict {
	r.spend(dictSteps * (1 + len(d.keys)))
	out := newDict()
	for i, k := range d.keys {
		out.set(k, d.values[i])
	}
	out.set(key, v)
	return out
}

// plain returns the text of a content: a text, or parts, which newlines separate.
func (r *run) plain(content any) string {
	l, ok := content.(*list)
	if !ok {
		if content == nil {
			return ""
		}
		return r.text(content)
	}
	texts := &list{}
	for _, part := range l.items {
		if d, ok := part.(*dict); ok && at(d, "text") != nil {
			part = at(d, "text")
		}
		texts.items = append(texts.items, part)
	}
	return r.join(texts, "\n", false)
}

// after returns a content followed by text; between separates them.
func (r *run) after(content any, between, text string) any {
	if l, ok := content.(*list); ok {
		r.spend(len(l.items))
		return &list{items: append(slices.Clone(l.items), partOf(text))}
	}
	return r.both(r.plain(content), between, text)
}

// before returns text followed by a content; between separates them.
func (r *run) before(text, between string, content any) any {
	if l, ok := content.(*list); ok {
		r.spend(len(l.items))
		return &list{items: append([]any{partOf(text)}, l.items...)}
	}
	return r.both(text, between, r.plain(content))
}

func partOf(text string) any {
	d := newDict()
	d.set("type", "text")
	d.set("text", text)
	return d
}

// both returns two texts, with between after the first if there are both.
func (r *run) both(first, between, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	r.room(0, len(first)+len(between)+len(second))
	return first + between + second
}

// shortID returns an id of nine letters and digits, as Mistral's templates demand: id itself if it is one,
// else a hash.
func (r *run) shortID(id any) any {
	const letters, digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", 9
	s := r.plain(id)
	if len(s) == digits && strings.Trim(s, letters) == "" {
		return id
	}
	h := fnv.New64a()
	h.Write([]byte(s))
	n, out := h.Sum64(), make([]byte, digits)
	for i := range out {
		out[i], n = letters[n%uint64(len(letters))], n/uint64(len(letters))
	}
	return string(out)
}
