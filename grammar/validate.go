package grammar

import "fmt"

// Validate checks the rules as far as possible without a vocabulary. It returns [ErrInvalid]
// with the rule at fault, [ErrNothing] or [ErrTooLarge]. Its cost is linear in the number of
// expressions; one that is used several times counts once.
func (rules Rules) Validate() error {
	_, err := newTerms(rules, Limits{}.WithDefaults(), allBytes, nil)
	return err
}

// graph holds the distinct expressions of rules, by index.
type graph struct {
	exprs []*Expr
	rule  []int32   // by expression: a rule that contains it
	subs  [][]int32 // by expression: its parts
	calls [][]int32 // subs, but for a Call the root of its rule
	roots []int32   // by rule: its expression
}

// newGraph collects the expressions of rules and checks each one. It refuses expressions that contain
// themselves other than through a Call.
func newGraph(rules Rules, limits Limits) (*graph, error) {
	if len(rules) == 0 {
		return nil, fmt.Errorf("%w: there are none", ErrInvalid)
	}
	if len(rules) > limits.Exprs {
		return nil, fmt.Errorf("%w: %d rules, at most %d (Limits.Exprs)", ErrTooLarge, len(rules), limits.Exprs)
	}
	g := &graph{}
	at := map[*Expr]int32{}
	edges := 0
	add := func(e *Expr, rule int32) int32 {
		i, known := at[e]
		if !known {
			i = int32(len(g.exprs))
			at[e] = i
			g.exprs, g.rule = append(g.exprs, e), append(g.rule, rule)
		}
		return i
	}
	for r, e := range rules {
		g.roots = append(g.roots, add(e, int32(r)))
		for i := len(g.subs); i < len(g.exprs); i++ {
			if err := checkExpr(g.exprs[i], len(rules)); err != nil {
				return nil, fmt.Errorf("%w: rule %d: %w", ErrInvalid, g.rule[i], err)
			}
			if edges += len(g.exprs[i].Sub); edges+len(g.exprs) > limits.Exprs {
				return nil, fmt.Errorf("%w: over %d expressions (Limits.Exprs)", ErrTooLarge, limits.Exprs)
			}
			var subs []int32
			for _, sub := range g.exprs[i].Sub {
				subs = append(subs, add(sub, g.rule[i]))
			}
			g.subs = append(g.subs, subs)
		}
	}
	for i, e := range g.exprs {
		if e.Op == Call {
			g.calls = append(g.calls, []int32{g.roots[e.Rule]})
		} else {
			g.calls = append(g.calls, g.subs[i])
		}
	}
	if _, cycle := postorder(len(g.exprs), g.roots, func(i int32) []int32 { return g.subs[i] }); cycle >= 0 {
		return nil, fmt.Errorf("%w: rule %d: an expression is part of itself: make it a rule and call it", ErrInvalid, g.rule[cycle])
	}
	return g, nil
}

// checkExpr checks the fields of one expression; rules is the number of rules.
func checkExpr(e *Expr, rules int) error {
	if e == nil {
		return fmt.Errorf("nil expression")
	}
	if subs := len(e.Sub); subs > 0 && (e.Op == Text || e.Op == Runes || e.Op == Call || e.Op == Special) {
		return fmt.Errorf("operation %d with %d sub-expressions: it has none", e.Op, subs)
	}
	switch e.Op {
	case Text, Seq, Either, Special:
	case Runes:
		for _, r := range e.Runes {
			if r.Lo < 0 || r.Lo > r.Hi || r.Hi > 0x10FFFF {
				return fmt.Errorf("runes from %#x to %#x: want 0 ≤ Lo ≤ Hi ≤ 0x10FFFF", r.Lo, r.Hi)
			}
		}
	case Repeat:
		if len(e.Sub) != 1 {
			return fmt.Errorf("repeat with %d sub-expressions: it has one", len(e.Sub))
		}
		if e.Min < 0 || e.Min > maxRepeat || e.Max != Unlimited && (e.Max < e.Min || e.Max > maxRepeat) {
			return fmt.Errorf("repeat from %d to %d: want 0 ≤ Min ≤ Max ≤ %d, or Max Unlimited", e.Min, e.Max, maxRepeat)
		}
	case Call:
		if e.Rule < 0 || e.Rule >= rules {
			return fmt.Errorf("call of rule %d: there are %d", e.Rule, rules)
		}
	default:
		return fmt.Errorf("unknown operation %d", e.Op)
	}
	return nil
}
