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

// adapter changes a caller's values as its plan says. The marks of control tokens are in the values already: the
// words that it adds are the server's, and a control token in them counts as one.
type adapter struct {
	run   *run // for the limits
	plan  plan
	tools *list  // the caller's; nil: none
	now   string // the text of the time
}

// adapt changes the values.
func (a *adapter) adapt(vars map[string]any) {
	a.tools, _ = vars["tools"].(*list)
	p := a.plan
	if p.functions {
		a.functions(vars)
	}
	switch {
	case p.tools:
		vars["tools"] = nil
	case p.fill && a.tools != nil:
		vars["tools"] = a.filled()
	}
	if p.empty && vars["tools"] == nil {
		vars["tools"] = &list{}
	}
	if p.tools || p.calls || p.results || p.single || p.text || p.short {
		vars["messages"] = &list{items: a.turns(vars["messages"].(*list).items)}
	}
}

// turns returns the messages, changed as the plan says.
func (a *adapter) turns(messages []any) []any {
	out := make([]any, 0, len(messages)+1)
	ours := false // the last turn of out was made of results
	for rest := messages; len(rest) > 0; {
		m := rest[0].(*dict)
		rest = rest[1:]
		calls := callsOf(m)
		if len(calls) == 0 && roleOf(m) != toolRole {
			if last := len(out) - 1; ours && roleOf(m) == userRole { // some templates demand that user and assistant take turns
				out[last] = a.replaced(m, contentKey, a.before(at(out[last].(*dict), contentKey).(string), "\n\n", at(m, contentKey)))
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
			out = a.addCalls(out, nil, append([]any{m}, rest[:n]...))
		} else {
			out = a.addCalls(out, m, rest[:n])
		}
		ours = a.plan.results && (n > 0 || len(calls) == 0)
		rest = rest[n:]
	}
	if a.plan.tools {
		return a.instruct(out)
	}
	return out
}

// addCalls appends m, a message with calls or nil, and the results that follow it.
func (a *adapter) addCalls(out []any, m *dict, results []any) []any {
	a.run.spend(dictSteps * (1 + len(results)))
	calls := callsOf(m)
	of := answering(calls)
	if a.plan.results || a.plan.single { // the results in the order of the calls
		results = slices.Clone(results)
		slices.SortStableFunc(results, func(x, y any) int { return cmp.Compare(of(x), of(y)) })
	}
	switch {
	case m == nil:
	case a.plan.calls:
		out = append(out, a.withoutCalls(m, calls))
	case a.plan.single && len(calls) > 1:
		return a.apart(out, m, calls, results, of)
	default:
		out = append(out, a.withCalls(m, calls))
	}
	return a.addResults(out, results)
}

// apart appends a message for each of several calls, followed by its results. The content stays before the
// first call. Results that belong to no call follow the last one.
func (a *adapter) apart(out []any, m *dict, calls, results []any, of func(result any) int) []any {
	for i, call := range calls {
		n := 0
		for n < len(results) && (of(results[n]) <= i || i == len(calls)-1) {
			n++
		}
		one := m
		if i > 0 {
			one = message(assistantRole, "")
		}
		out = a.addResults(append(out, a.withCalls(one, []any{call})), results[:n])
		results = results[n:]
	}
	return out
}

// answering returns a function that gives the index of the call that a result answers, len(calls) if it answers none.
func answering(calls []any) func(result any) int {
	index := map[any]int{}
	for i, c := range calls {
		d, _ := c.(*dict)
		if id := at(d, "id"); id != nil {
			if _, ok := index[id]; !ok {
				index[id] = i
			}
		}
	}
	return func(result any) int {
		if i, ok := index[at(result.(*dict), "tool_call_id")]; ok {
			return i
		}
		return len(calls)
	}
}

// withCalls returns m with these calls, in the form that the template takes.
func (a *adapter) withCalls(m *dict, calls []any) *dict {
	all := &list{}
	for _, c := range calls {
		d, ok := c.(*dict)
		if ok && a.plan.short && at(d, "id") != nil {
			d = a.replaced(d, "id", a.shortID(at(d, "id")))
		}
		if f, is := at(d, "function").(*dict); ok && is && a.plan.text {
			if arguments, is := at(f, "arguments").(*dict); is {
				d = a.replaced(d, "function", a.replaced(f, "arguments", a.json(arguments)))
			}
		}
		if ok {
			c = d
		}
		all.items = append(all.items, c)
	}
	return a.replaced(m, callsKey, all)
}

// withoutCalls returns m with its calls as text after its content.
func (a *adapter) withoutCalls(m *dict, calls []any) *dict {
	var b strings.Builder
	for i, c := range calls {
		if i > 0 {
			a.run.add(&b, "\n")
		}
		d, _ := c.(*dict)
		f, _ := at(d, "function").(*dict)
		a.run.add(&b, callOpen+a.json(at(f, "name"))+callArguments+a.json(at(f, "arguments"))+callClose)
	}
	out := newDict()
	for i, key := range m.keys {
		if key != callsKey {
			out.set(key, m.values[i])
		}
	}
	out.set(contentKey, a.after(at(m, contentKey), "\n", b.String()))
	return out
}

// addResults appends results: as they are, or as one turn of the user.
func (a *adapter) addResults(out, results []any) []any {
	if len(results) == 0 {
		return out
	}
	if !a.plan.results {
		for _, m := range results {
			if d := m.(*dict); a.plan.short && at(d, "tool_call_id") != nil {
				m = a.replaced(d, "tool_call_id", a.shortID(at(d, "tool_call_id")))
			}
			out = append(out, m)
		}
		return out
	}
	var b strings.Builder
	for i, m := range results {
		if i > 0 {
			a.run.add(&b, "\n")
		}
		a.run.add(&b, resultOpen)
		a.run.add(&b, a.plain(at(m.(*dict), contentKey)))
		a.run.add(&b, resultClose)
	}
	return append(out, message(userRole, b.String()))
}

func message(role, content string) *dict { return dictOf("role", role, contentKey, content) }

func partOf(text string) any { return dictOf("type", "text", "text", text) }

func dictOf(key1, value1, key2, value2 string) *dict {
	d := newDict()
	d.set(key1, value1)
	d.set(key2, value2)
	return d
}

var asJSON = &style{json: true, item: ", ", key: ": "}

func (a *adapter) json(v any) string {
	var b strings.Builder
	a.run.format(&b, v, asJSON, 0)
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

// callsOf returns the calls of a message, none if m is nil.
func callsOf(m *dict) []any {
	if l, ok := at(m, callsKey).(*list); ok {
		return l.items
	}
	return nil
}

// replaced returns a copy of d with another value of key.
func (a *adapter) replaced(d *dict, key string, v any) *dict {
	a.run.spend(dictSteps * (1 + len(d.keys)))
	out := newDict()
	for i, k := range d.keys {
		out.set(k, d.values[i])
	}
	out.set(key, v)
	return out
}

// plain returns the text of a content: a text, or parts, which newlines separate.
func (a *adapter) plain(content any) string {
	l, ok := content.(*list)
	if !ok {
		if content == nil {
			return ""
		}
		return a.run.text(content)
	}
	texts := &list{}
	for _, part := range l.items {
		if d, ok := part.(*dict); ok && at(d, "text") != nil {
			part = at(d, "text")
		}
		texts.items = append(texts.items, part)
	}
	return a.run.join(texts, "\n", false)
}

// after returns a content followed by text; between separates them.
func (a *adapter) after(content any, between, text string) any {
	if l, ok := content.(*list); ok {
		a.run.spend(len(l.items))
		return &list{items: append(slices.Clone(l.items), partOf(text))}
	}
	return a.both(a.plain(content), between, text)
}

// before returns text followed by a content; between separates them.
func (a *adapter) before(text, between string, content any) any {
	if l, ok := content.(*list); ok {
		a.run.spend(len(l.items))
		return &list{items: append([]any{partOf(text)}, l.items...)}
	}
	return a.both(text, between, a.plain(content))
}

// both returns two texts, with between after the first if there are both.
func (a *adapter) both(first, between, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	a.run.room(0, len(first)+len(between)+len(second))
	return first + between + second
}

// shortID returns an id of nine letters and digits, as Mistral's templates demand: id itself if it is one,
// else a hash.
func (a *adapter) shortID(id any) any {
	const letters, digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", 9
	s := a.plain(id)
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
