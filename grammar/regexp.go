package grammar

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/internal/bail"
)

// ParseRegexp returns the grammar of the texts that pattern, in the syntax of package regexp,
// matches as a whole, as if it were written ^(?:…)$. Greedy and lazy repeats are the same. ^
// and $ are accepted only at the beginning and the end, where they change nothing. \b, \B and
// the line anchors of (?m) depend on the text on both sides and return [ErrUnsupported]. A
// syntax error returns [ErrInvalid], a pattern over 128 KiB [ErrTooLarge].
func ParseRegexp(pattern string) (Rules, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("%w: a regular expression of %d bytes: at most %d", ErrTooLarge, len(pattern), maxPattern)
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("%w: %.200v", ErrInvalid, err) // err may quote the whole expression
	}
	rules, err := regexpRules(re)
	if err != nil {
		return nil, fmt.Errorf("grammar: regular expression %.100q: %w", pattern, err)
	}
	return rules, nil
}

func regexpRules(re *syntax.Regexp) (_ Rules, err error) {
	defer bail.Recover(&err)
	return Rules{regexpExpr(re, true, true)}, nil
}

// regexpExpr returns re as an Expr, or bails out. first and last report that nothing precedes and nothing
// follows it, so that anchors are allowed.
func regexpExpr(re *syntax.Regexp, first, last bool) *Expr {
	switch re.Op {
	case syntax.OpNoMatch:
		return &Expr{Op: Either}
	case syntax.OpEmptyMatch:
		return &Expr{Op: Text}
	case syntax.OpLiteral:
		return literalExpr(re)
	case syntax.OpCharClass:
		e := &Expr{Op: Runes}
		for i := 0; i+1 < len(re.Rune); i += 2 {
			e.Runes = append(e.Runes, Range{Lo: re.Rune[i], Hi: re.Rune[i+1]})
		}
		return e
	case syntax.OpAnyChar:
		return &Expr{Op: Runes, Runes: []Range{{Lo: 0, Hi: unicode.MaxRune}}}
	case syntax.OpAnyCharNotNL:
		return &Expr{Op: Runes, Runes: []Range{{Lo: 0, Hi: '\n' - 1}, {Lo: '\n' + 1, Hi: unicode.MaxRune}}}
	case syntax.OpBeginText, syntax.OpEndText:
		if re.Op == syntax.OpBeginText && !first || re.Op == syntax.OpEndText && !last {
			bail.Out(fmt.Errorf("%w: %s in the middle: leave it out, the whole text is matched", ErrUnsupported, re))
		}
		return &Expr{Op: Text}
	case syntax.OpCapture:
		return regexpExpr(re.Sub[0], first, last)
	case syntax.OpStar:
		return repeatExpr(re, 0, Unlimited, false, false)
	case syntax.OpPlus:
		return repeatExpr(re, 1, Unlimited, false, false)
	case syntax.OpQuest:
		return repeatExpr(re, 0, 1, first, last)
	case syntax.OpRepeat:
		return repeatExpr(re, re.Min, re.Max, false, false)
	case syntax.OpConcat:
		e := &Expr{Op: Seq}
		end := len(re.Sub) // only anchors follow from here on
		for end > 0 && onlyAnchors(re.Sub[end-1]) {
			end--
		}
		for i, sub := range re.Sub {
			e.Sub = append(e.Sub, regexpExpr(sub, first, last && i+1 >= end))
			first = first && onlyAnchors(sub)
		}
		return e
	case syntax.OpAlternate:
		e := &Expr{Op: Either}
		for _, sub := range re.Sub {
			e.Sub = append(e.Sub, regexpExpr(sub, first, last))
		}
		return e
	}
	bail.Out(fmt.Errorf("%w: %s", ErrUnsupported, re))
	return nil
}

func repeatExpr(re *syntax.Regexp, least, most int, first, last bool) *Expr {
	return &Expr{Op: Repeat, Sub: []*Expr{regexpExpr(re.Sub[0], first, last)}, Min: least, Max: most}
}

// onlyAnchors reports whether re is an anchor or matches only "".
func onlyAnchors(re *syntax.Regexp) bool {
	for re.Op == syntax.OpCapture {
		re = re.Sub[0]
	}
	return re.Op == syntax.OpBeginText || re.Op == syntax.OpEndText || re.Op == syntax.OpEmptyMatch
}

// literalExpr returns a literal as an Expr. With the flag (?i) each rune becomes the set of the runes
// that differ from it only in case.
func literalExpr(re *syntax.Regexp) *Expr {
	valid := !slices.ContainsFunc(re.Rune, func(r rune) bool { return !utf8.ValidRune(r) })
	if valid && re.Flags&syntax.FoldCase == 0 {
		return &Expr{Op: Text, Text: string(re.Rune)}
	}
	e := &Expr{Op: Seq}
	for _, r := range re.Rune {
		either := []Range{{Lo: r, Hi: r}} // matches nothing if r is a surrogate
		for f := unicode.SimpleFold(r); f != r && re.Flags&syntax.FoldCase != 0; f = unicode.SimpleFold(f) {
			either = append(either, Range{Lo: f, Hi: f})
		}
		e.Sub = append(e.Sub, &Expr{Op: Runes, Runes: either})
	}
	return e
}
