package jsonschema

import (
	"slices"

	"github.com/coppice-llm/coppice/grammar"
)

// trim returns rules without the parts that can't be reached or match no text, so that every
// prefix that a matcher accepts can be completed. Rules[0] becomes nothing if it matches no
// text. Time is linear in the size of rules: a rule is judged again only after a rule that it
// depends on has been found to match some text.
func trim(rules grammar.Rules) grammar.Rules {
	t := &trimmer{ends: make([]bool, len(rules)), number: make(map[int]int)}
	t.settle(func(rule int) bool { return t.end(rules[rule]) })
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
	ends   []bool      // by rule: it is known to match some text
	lacks  []int       // rules not known to match some text that the last call of end needed
	number map[int]int // new numbers of reached rules, by old number
	order  []int       // old numbers, by new number
}

// settle finds the rules that match some text, and sets t.ends. judge reports whether a rule
// does, as far as t.ends shows; if it returns false, it leaves in t.lacks the rules on which that
// depends.
func (t *trimmer) settle(judge func(rule int) bool) {
	type waiter struct{ rule, turn int }
	waits := make([][]waiter, len(t.ends)) // by rule: the rules that wait for it
	turn := make([]int, len(t.ends))       // by rule: times judged; entries of earlier turns are stale
	work := make([]int, len(t.ends))
	for i := range work {
		work[i] = i
	}
	for len(work) > 0 {
		rule := work[len(work)-1]
		work = work[:len(work)-1]
		turn[rule]++
		t.lacks = t.lacks[:0]
		if !judge(rule) {
			for _, other := range t.lacks {
				waits[other] = append(waits[other], waiter{rule, turn[rule]})
			}
			continue
		}
		t.ends[rule] = true
		for _, w := range waits[rule] {
			if turn[w.rule] == w.turn {
				turn[w.rule]++ // now in work: its other entries become stale
				work = append(work, w.rule)
			}
		}
		waits[rule] = nil
	}
}

// end reports whether e matches some text, as far as t.ends shows. It appends to t.lacks the
// rules that e calls and that are not in t.ends yet.
func (t *trimmer) end(e *grammar.Expr) bool {
	switch e.Op {
	case grammar.Seq:
		return !slices.ContainsFunc(e.Sub, func(s *grammar.Expr) bool { return !t.end(s) })
	case grammar.Either:
		return slices.ContainsFunc(e.Sub, t.end)
	case grammar.Repeat:
		return e.Min == 0 || t.end(e.Sub[0])
	case grammar.Runes:
		return len(e.Runes) > 0
	case grammar.Call:
		if !t.ends[e.Rule] {
			t.lacks = append(t.lacks, e.Rule)
		}
		return t.ends[e.Rule]
	}
	return true
}

// prune returns e without the parts that match no text.
func (t *trimmer) prune(e *grammar.Expr) *grammar.Expr {
	if (e.Op == grammar.Call || e.Op == grammar.Runes) && !t.end(e) {
		return nothing
	}
	return rebuilt(e, t.prune)
}

// call returns the new number of rule, and records that the rule is reached.
func (t *trimmer) call(rule int) int {
	n, ok := t.number[rule]
	if !ok {
		n = len(t.order)
		t.number[rule] = n
		t.order = append(t.order, rule)
	}
	return n
}

// renumber returns a copy of e with new numbers in its calls.
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
