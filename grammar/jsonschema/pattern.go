package jsonschema

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/grammar"
)

// begin and end stand for ^ and $ in the expression of a pattern; code compares them by pointer.
// anchored removes them.
var (
	begin = &grammar.Expr{Op: grammar.Text, Text: "^"}
	end   = &grammar.Expr{Op: grammar.Text, Text: "$"}
)

// pattern returns the expression of the strings that have a match of the ECMA-262 pattern source
// anywhere. The strings are values, without escapes. The dialect is that of the flag u, but
// characters that must be escaped there need not be. The error is a syntaxError, or names a
// feature that is not supported.
func pattern(source string) (*grammar.Expr, error) {
	p := &patternParser{rest: source}
	e, err := p.alternatives()
	if err == nil && p.rest != "" {
		err = p.fault("an unopened )")
	}
	if err != nil {
		return nil, err
	}
	pieces, err := make(widths).anchored(e)
	if err != nil {
		return nil, err
	}
	anything := repeat(runes(grammar.Range{Lo: 0, Hi: utf8.MaxRune}), 0, grammar.Unlimited)
	out := make([]*grammar.Expr, len(pieces))
	for i, piece := range pieces {
		before, after := anything, anything
		if piece.begins {
			before = nil
		}
		if piece.ends {
			after = nil
		}
		out[i] = seq(before, piece.body, after)
	}
	return either(out...), nil
}

// syntaxError reports text that is not a pattern of ECMA-262.
type syntaxError struct{ text string }

func (e syntaxError) Error() string { return e.text }

// patternParser is a recursive-descent parser of patterns. depth counts open groups.
type patternParser struct {
	rest  string
	depth int
}

// fault returns a syntaxError with the text at which parsing stopped.
func (p *patternParser) fault(what string) error {
	return syntaxError{fmt.Sprintf("%s, before %.20q", what, p.rest)}
}

// cut consumes prefix and reports whether the rest of the pattern began with it.
func (p *patternParser) cut(prefix string) bool {
	rest, ok := strings.CutPrefix(p.rest, prefix)
	p.rest = rest
	return ok
}

// alternatives parses branches separated by |, up to a closing parenthesis or the end.
func (p *patternParser) alternatives() (*grammar.Expr, error) {
	if p.depth++; p.depth > 100 {
		return nil, errors.New("groups over 100 deep")
	}
	defer func() { p.depth-- }()
	var branches []*grammar.Expr
	for {
		var terms []*grammar.Expr
		for p.rest != "" && p.rest[0] != '|' && p.rest[0] != ')' {
			t, err := p.term()
			if err != nil {
				return nil, err
			}
			terms = append(terms, t)
		}
		branches = append(branches, sequence(terms))
		if !p.cut("|") {
			return either(branches...), nil
		}
	}
}

// sequence returns an expression of terms in sequence. Unlike seq it does not join texts: begin
// and end have Op Text, and seq would merge them with adjacent texts.
func sequence(terms []*grammar.Expr) *grammar.Expr {
	if len(terms) == 1 {
		return terms[0]
	}
	for _, t := range terms {
		if t == nothing {
			return nothing
		}
	}
	return &grammar.Expr{Op: grammar.Seq, Sub: terms}
}

func (p *patternParser) term() (*grammar.Expr, error) {
	e, err := p.atom()
	if err != nil {
		return nil, err
	}
	least, most, ok, err := p.quantifier()
	if err != nil || !ok {
		return e, err
	}
	if e == begin || e == end {
		return nil, p.fault("a repeated anchor")
	}
	p.cut("?") // lazy or not, the same strings match
	return repeat(e, least, most), nil
}

// quantifier parses *, +, ? or {n,m}; ok is false if there is none. A brace that begins no valid
// quantifier is an ordinary character.
func (p *patternParser) quantifier() (least, most int, ok bool, err error) {
	switch {
	case p.cut("*"):
		return 0, grammar.Unlimited, true, nil
	case p.cut("+"):
		return 1, grammar.Unlimited, true, nil
	case p.cut("?"):
		return 0, 1, true, nil
	}
	// Only digits are scanned for the closing brace, so a pattern of many braces stays linear.
	inner, opened := strings.CutPrefix(p.rest, "{")
	from, rest := cutDigits(inner)
	rest, ranged := strings.CutPrefix(rest, ",")
	to := ""
	if ranged {
		to, rest = cutDigits(rest)
	}
	if !opened || from == "" || !strings.HasPrefix(rest, "}") {
		return 0, 0, false, nil
	}
	inner, p.rest = inner[:len(inner)-len(rest)], rest[1:]
	least, err = strconv.Atoi(from)
	most = least
	if ranged {
		most = grammar.Unlimited
		if to != "" && err == nil {
			most, err = strconv.Atoi(to)
		}
	}
	if err != nil || least > 1<<24 || most > 1<<24 {
		return 0, 0, false, fmt.Errorf("{%.20s} is over 2^24", inner)
	}
	if most != grammar.Unlimited && most < least {
		return 0, 0, false, p.fault(fmt.Sprintf("{%.20s} is no range", inner))
	}
	return least, most, true, nil
}

func cutDigits(s string) (digits, rest string) {
	rest = strings.TrimLeft(s, "0123456789")
	return s[:len(s)-len(rest)], rest
}

var lineEnds = []grammar.Range{{Lo: '\n', Hi: '\n'}, {Lo: '\r', Hi: '\r'}, {Lo: 0x2028, Hi: 0x2029}}

func (p *patternParser) atom() (*grammar.Expr, error) {
	switch {
	case p.cut("^"):
		return begin, nil
	case p.cut("$"):
		return end, nil
	case p.cut("."):
		return runes(complement(lineEnds)...), nil
	case p.cut("("):
		return p.group()
	case p.cut("["):
		set, err := p.class()
		return runes(set...), err
	case p.cut(`\`):
		set, err := p.escape(false)
		return runes(set...), err
	case strings.HasPrefix(p.rest, "*"), strings.HasPrefix(p.rest, "+"), strings.HasPrefix(p.rest, "?"):
		return nil, p.fault("nothing to repeat")
	}
	r, n := utf8.DecodeRuneInString(p.rest)
	p.rest = p.rest[n:]
	return runes(grammar.Range{Lo: r, Hi: r}), nil
}

// group parses a group after its opening parenthesis. A group that captures is the same as one
// that does not.
func (p *patternParser) group() (*grammar.Expr, error) {
	switch {
	case p.cut("?:"):
	case p.cut("?="), p.cut("?!"), p.cut("?<="), p.cut("?<!"):
		return nil, errors.New("look-ahead and look-behind")
	case p.cut("?<"):
		_, rest, ok := strings.Cut(p.rest, ">")
		if !ok {
			return nil, p.fault("a group's name without >")
		}
		p.rest = rest
	case p.cut("?"):
		return nil, errors.New("flags inside a pattern")
	}
	e, err := p.alternatives()
	if err == nil && !p.cut(")") {
		err = p.fault("an unclosed (")
	}
	return e, err
}

// class parses a character class after its opening bracket.
func (p *patternParser) class() ([]grammar.Range, error) {
	negated := p.cut("^")
	var set []grammar.Range
	for !p.cut("]") {
		from, err := p.classAtom()
		if err != nil {
			return nil, err
		}
		to := from
		if strings.HasPrefix(p.rest, "-") && !strings.HasPrefix(p.rest, "-]") {
			p.cut("-")
			if to, err = p.classAtom(); err != nil {
				return nil, err
			}
			if len(from) != 1 || from[0].Lo != from[0].Hi || len(to) != 1 || to[0].Lo != to[0].Hi || from[0].Lo > to[0].Lo {
				return nil, p.fault("a range without an order")
			}
			from = []grammar.Range{{Lo: from[0].Lo, Hi: to[0].Hi}}
		}
		set = append(set, from...)
	}
	set = normal(set)
	if negated {
		set = complement(set)
	}
	return set, nil
}

func (p *patternParser) classAtom() ([]grammar.Range, error) {
	switch {
	case p.rest == "":
		return nil, p.fault("an unclosed [")
	case p.cut(`\`):
		return p.escape(true)
	}
	r, n := utf8.DecodeRuneInString(p.rest)
	p.rest = p.rest[n:]
	return []grammar.Range{{Lo: r, Hi: r}}, nil
}

// property parses {…} after \p and returns the runes of that general category or script, or with
// negated all other runes.
func (p *patternParser) property(negated bool) ([]grammar.Range, error) {
	name, rest, ok := strings.Cut(p.rest, "}")
	name, opened := strings.CutPrefix(name, "{")
	if !ok || !opened {
		return nil, p.fault(`\p without {…}`)
	}
	p.rest = rest
	if kind, of, ok := strings.Cut(name, "="); ok {
		switch kind {
		case "Script", "sc", "Script_Extensions", "scx", "General_Category", "gc":
			name = of
		}
	}
	table := unicode.Categories[name]
	if table == nil {
		table = unicode.Scripts[name]
	}
	if table == nil {
		return nil, fmt.Errorf(`\p{%.50s}`, name)
	}
	var set []grammar.Range
	for _, r := range table.R16 {
		set = appendStrided(set, rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range table.R32 {
		set = appendStrided(set, rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	set = normal(set)
	if negated {
		set = complement(set)
	}
	return set, nil
}

func appendStrided(set []grammar.Range, lo, hi, stride rune) []grammar.Range {
	if stride == 1 {
		return append(set, grammar.Range{Lo: lo, Hi: hi})
	}
	for r := lo; r <= hi; r += stride {
		set = append(set, grammar.Range{Lo: r, Hi: r})
	}
	return set
}
