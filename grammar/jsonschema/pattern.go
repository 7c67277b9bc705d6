package jsonschema

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/internal/bail"
	"github.com/coppice-llm/coppice/internal/runeset"
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
func pattern(source string) (_ *grammar.Expr, err error) {
	defer bail.Recover(&err)
	p := &patternParser{rest: source}
	e := p.alternatives()
	if p.rest != "" {
		p.fault("an unopened )")
	}
	pieces := make(widths).anchored(e)
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

// fault ends parsing with a syntaxError that has the text at which parsing stopped.
func (p *patternParser) fault(what string) {
	bail.Out(syntaxError{fmt.Sprintf("%s, before %.20q", what, p.rest)})
}

// lacks ends the translation of a pattern with the name of a feature that is not supported.
func lacks(format string, args ...any) { bail.Out(fmt.Errorf(format, args...)) }

// cut consumes prefix and reports whether the rest of the pattern began with it.
func (p *patternParser) cut(prefix string) bool {
	rest, ok := strings.CutPrefix(p.rest, prefix)
	p.rest = rest
	return ok
}

// alternatives parses branches separated by |, up to a closing parenthesis or the end.
func (p *patternParser) alternatives() *grammar.Expr {
	if p.depth++; p.depth > 100 {
		lacks("groups over 100 deep")
	}
	defer func() { p.depth-- }()
	var branches []*grammar.Expr
	for {
		var terms []*grammar.Expr
		for p.rest != "" && p.rest[0] != '|' && p.rest[0] != ')' {
			terms = append(terms, p.term())
		}
		branches = append(branches, sequence(terms))
		if !p.cut("|") {
			return either(branches...)
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

func (p *patternParser) term() *grammar.Expr {
	e := p.atom()
	least, most, ok := p.quantifier()
	if !ok {
		return e
	}
	if e == begin || e == end {
		p.fault("a repeated anchor")
	}
	p.cut("?") // lazy or not, the same strings match
	return repeat(e, least, most)
}

// quantifier parses *, +, ? or {n,m}; ok is false if there is none. A brace that begins no valid
// quantifier is an ordinary character.
func (p *patternParser) quantifier() (least, most int, ok bool) {
	switch {
	case p.cut("*"):
		return 0, grammar.Unlimited, true
	case p.cut("+"):
		return 1, grammar.Unlimited, true
	case p.cut("?"):
		return 0, 1, true
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
		return 0, 0, false
	}
	inner, p.rest = inner[:len(inner)-len(rest)], rest[1:]
	least, err := strconv.Atoi(from)
	most = least
	if ranged {
		most = grammar.Unlimited
		if to != "" && err == nil {
			most, err = strconv.Atoi(to)
		}
	}
	if err != nil || least > 1<<24 || most > 1<<24 {
		lacks("{%.20s} is over 2^24", inner)
	}
	if most != grammar.Unlimited && most < least {
		p.fault(fmt.Sprintf("{%.20s} is no range", inner))
	}
	return least, most, true
}

func cutDigits(s string) (digits, rest string) {
	rest = strings.TrimLeft(s, "0123456789")
	return s[:len(s)-len(rest)], rest
}

var lineEnds = runeset.Set{{Lo: '\n', Hi: '\n'}, {Lo: '\r', Hi: '\r'}, {Lo: 0x2028, Hi: 0x2029}}

func (p *patternParser) atom() *grammar.Expr {
	switch {
	case p.cut("^"):
		return begin
	case p.cut("$"):
		return end
	case p.cut("."):
		return runes(lineEnds.Complement()...)
	case p.cut("("):
		return p.group()
	case p.cut("["):
		return runes(p.class()...)
	case p.cut(`\`):
		return runes(p.escape(false)...)
	case strings.HasPrefix(p.rest, "*"), strings.HasPrefix(p.rest, "+"), strings.HasPrefix(p.rest, "?"):
		p.fault("nothing to repeat")
	}
	return runes(runeset.One(p.rune())...)
}

// rune consumes a character.
func (p *patternParser) rune() rune {
	r, n := utf8.DecodeRuneInString(p.rest)
	p.rest = p.rest[n:]
	return r
}

// group parses a group after its opening parenthesis. A group that captures is the same as one
// that does not.
func (p *patternParser) group() *grammar.Expr {
	switch {
	case p.cut("?:"):
	case p.cut("?="), p.cut("?!"), p.cut("?<="), p.cut("?<!"):
		lacks("look-ahead and look-behind")
	case p.cut("?<"):
		_, rest, ok := strings.Cut(p.rest, ">")
		if !ok {
			p.fault("a group's name without >")
		}
		p.rest = rest
	case p.cut("?"):
		lacks("flags inside a pattern")
	}
	e := p.alternatives()
	if !p.cut(")") {
		p.fault("an unclosed (")
	}
	return e
}

// class parses a character class after its opening bracket.
func (p *patternParser) class() runeset.Set {
	negated := p.cut("^")
	var all []grammar.Range
	for !p.cut("]") {
		from := p.classAtom()
		if strings.HasPrefix(p.rest, "-") && !strings.HasPrefix(p.rest, "-]") {
			p.cut("-")
			to := p.classAtom()
			if !from.IsOne() || !to.IsOne() || from[0].Lo > to[0].Lo {
				p.fault("a range without an order")
			}
			from = runeset.Set{{Lo: from[0].Lo, Hi: to[0].Hi}}
		}
		all = append(all, from...)
	}
	if negated {
		return runeset.New(all).Complement()
	}
	return runeset.New(all)
}

func (p *patternParser) classAtom() runeset.Set {
	switch {
	case p.rest == "":
		p.fault("an unclosed [")
	case p.cut(`\`):
		return p.escape(true)
	}
	return runeset.One(p.rune())
}

// property parses {…} after \p and returns the runes of that general category or script, or with
// negated all other runes.
func (p *patternParser) property(negated bool) runeset.Set {
	name, rest, ok := strings.Cut(p.rest, "}")
	name, opened := strings.CutPrefix(name, "{")
	if !ok || !opened {
		p.fault(`\p without {…}`)
	}
	p.rest = rest
	if kind, of, ok := strings.Cut(name, "="); ok {
		switch kind {
		case "Script", "sc", "Script_Extensions", "scx", "General_Category", "gc":
			name = of
		}
	}
	table := cmp.Or(unicode.Categories[name], unicode.Scripts[name])
	if table == nil {
		lacks(`\p{%.50s}`, name)
	}
	if negated {
		return runeset.Table(table).Complement()
	}
	return runeset.Table(table)
}
