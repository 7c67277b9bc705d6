package jsonschema

import "github.com/coppice-llm/coppice/grammar"

// trim returns rules without what can't be reached or can't come to an end, so
// that no text leads into a place that none leads out of. Rules[0] is nothing if
// it is so itself. Its cost is that of rules, times the depth of calls that are
// neither in the order of rules nor against it.
func trim(rules grammar.Rules) grammar.Rules {
	t := &trimmer{ends: make([]bool, len(rules)), number: make(map[int]int)}
	for changed, pass := true, 0; changed; pass++ {
		changed = false
		for i := range rules {
			if pass%2 == 0 {
				i = len(rules) - 1 - i
			}
			if !t.ends[i] && t.end(rules[i]) {
				t.ends[i], changed = true, true
			}
		}
	}
	pruned := make(grammar.Rules, len(rules))
	for i, e := range rules {
		pruned[i] = t.prune(e)
	}
	var out grammar.Rules
	t.call(0)
	for i := 0; i < len(t.order); i++ {
		out = append(out, t.renumber(pruned[t.order[i]]))
	}
	return out
}

type trimmer struct {
	ends   []bool      // rules that come to an end
	number map[int]int // new numbers of rules that are reached
	order  []int       // old numbers, by new
}

func (t *trimmer) end(e *grammar.Expr) bool {
	switch e.Op {
	case grammar.Seq:
		for _, s := range e.Sub {
			if !t.end(s) {
				return false
			}
		}
	case grammar.Either:
		for _, s := range e.Sub {
			if t.end(s) {
				return true
			}
		}
		return false
	case grammar.Repeat:
		return e.Min == 0 || t.end(e.Sub[0])
	case grammar.Runes:
		return len(e.Runes) > 0
	case grammar.Call:
		return t.ends[e.Rule]
	}
	return true
}

func (t *trimmer) prune(e *grammar.Expr) *grammar.Expr {
	switch e.Op {
	case grammar.Call, grammar.Runes:
		if !t.end(e) {
			return nothing
		}
		return e
	case grammar.Repeat:
		return repeat(t.prune(e.Sub[0]), e.Min, e.Max)
	case grammar.Seq, grammar.Either:
		sub := make([]*grammar.Expr, len(e.Sub))
		for i, s := range e.Sub {
			sub[i] = t.prune(s)
		}
		if e.Op == grammar.Seq {
			return seq(sub...)
		}
		return either(sub...)
	}
	return e
}

func (t *trimmer) call(rule int) int {
	n, ok := t.number[rule]
	if !ok {
		n = len(t.order)
		t.number[rule] = n
		t.order = append(t.order, rule)
	}
	return n
}

func (t *trimmer) renumber(e *grammar.Expr) *grammar.Expr {
	if e.Op == grammar.Call {
		return &grammar.Expr{Op: grammar.Call, Rule: t.call(e.Rule)}
	}
	if len(e.Sub) == 0 {
		return e
	}
	c := *e
	c.Sub = make([]*grammar.Expr, len(e.Sub))
	for i, s := range e.Sub {
		c.Sub[i] = t.renumber(s)
	}
	return &c
}
