package jsonschema

import "github.com/coppice-llm/coppice/grammar"

// Constructors of expressions. nothing matches no text, empty matches "". Constructors simplify, so
// nothing and empty can be compared by pointer.
var (
	nothing = &grammar.Expr{Op: grammar.Either}
	empty   = &grammar.Expr{Op: grammar.Text}
	digit   = runes(grammar.Range{Lo: '0', Hi: '9'})
	oneNine = runes(grammar.Range{Lo: '1', Hi: '9'})
)

func lit(s string) *grammar.Expr { return &grammar.Expr{Op: grammar.Text, Text: s} }

func runes(ranges ...grammar.Range) *grammar.Expr {
	return &grammar.Expr{Op: grammar.Runes, Runes: ranges}
}

// seq returns parts in sequence. It joins adjacent texts and leaves out nil and empty parts; it
// returns nothing if a part is nothing.
func seq(parts ...*grammar.Expr) *grammar.Expr {
	var sub []*grammar.Expr
	var run []byte // bytes of the texts that end sub so far
	for _, p := range parts {
		switch {
		case p == nil || p.Op == grammar.Text && p.Text == "":
			continue
		case p == nothing:
			return nothing
		case p.Op == grammar.Text:
			if len(run) > 0 {
				run = append(run, p.Text...)
				continue
			}
			run = append(run, p.Text...)
			sub = append(sub, p)
			continue
		}
		sub, run = append(closeRun(sub, run), p), nil
	}
	sub = closeRun(sub, run)
	switch len(sub) {
	case 0:
		return empty
	case 1:
		return sub[0]
	}
	return &grammar.Expr{Op: grammar.Seq, Sub: sub}
}

func closeRun(sub []*grammar.Expr, run []byte) []*grammar.Expr {
	if n := len(sub); len(run) > 0 && len(run) > len(sub[n-1].Text) {
		sub[n-1] = lit(string(run))
	}
	return sub
}

// either returns an expression that matches any of parts. It leaves out parts that are nil or
// nothing.
func either(parts ...*grammar.Expr) *grammar.Expr {
	var sub []*grammar.Expr
	for _, p := range parts {
		if p != nil && p != nothing {
			sub = append(sub, p)
		}
	}
	switch len(sub) {
	case 0:
		return nothing
	case 1:
		return sub[0]
	}
	return &grammar.Expr{Op: grammar.Either, Sub: sub}
}

// repeat returns an expression that matches e repeated, between least and most times; most may be
// Unlimited. It returns nothing if most is below least.
func repeat(e *grammar.Expr, least, most int) *grammar.Expr {
	switch {
	case most != grammar.Unlimited && most < least:
		return nothing
	case most == 0 || e == empty || e == nothing && least == 0:
		return empty
	case e == nothing || least == 1 && most == 1:
		return e
	}
	return &grammar.Expr{Op: grammar.Repeat, Sub: []*grammar.Expr{e}, Min: least, Max: most}
}

// rebuilt returns e with f applied to each of its parts, simplified as by seq, either and repeat.
func rebuilt(e *grammar.Expr, f func(*grammar.Expr) *grammar.Expr) *grammar.Expr {
	sub := make([]*grammar.Expr, len(e.Sub))
	for i, s := range e.Sub {
		sub[i] = f(s)
	}
	switch e.Op {
	case grammar.Repeat:
		return repeat(sub[0], e.Min, e.Max)
	case grammar.Seq:
		return seq(sub...)
	case grammar.Either:
		return either(sub...)
	}
	return e
}

func optional(e *grammar.Expr) *grammar.Expr { return repeat(e, 0, 1) }

// cost returns the number of expressions in e, without those of rules that e calls. If that is
// above limit, the result is above limit too, but may be smaller than the number.
func cost(e *grammar.Expr, limit int) int {
	n := 1
	for _, s := range e.Sub {
		if n > limit {
			return n
		}
		n += cost(s, limit-n)
	}
	return n
}
