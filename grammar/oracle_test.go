package grammar

import (
	"math/rand/v2"
	"strings"
	"unicode/utf8"
)

// oracle matches by exhaustive search, expression by expression. It uses no automaton, no stack
// and no token.
type oracle struct {
	rules   Rules
	written [256]bool // the bytes that tokens have
	some    map[*Expr]bool
	prod    []bool
	null    []bool
	text    string
	memo    map[asked]*places
}

type asked struct {
	expr *Expr
	at   int
}

// places holds the positions in the text where an expression that starts at a certain position
// can end. partial reports whether the text can end before the expression does, so that more text
// could complete it.
type places struct {
	ends    spots
	partial bool
}

// spots is a set of positions in a text of under 192 bytes.
type spots [3]uint64

func (s *spots) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s *spots) has(i int) bool { return s[i/64]>>(i%64)&1 != 0 }
func (s *spots) union(o *spots) { s[0], s[1], s[2] = s[0]|o[0], s[1]|o[1], s[2]|o[2] }

func newOracle(rules Rules, tokens []string) *oracle {
	o := &oracle{rules: rules, some: map[*Expr]bool{}, prod: make([]bool, len(rules)), null: make([]bool, len(rules))}
	for _, token := range tokens {
		for i := range len(token) {
			o.written[token[i]] = true
		}
	}
	for range len(rules) + 1 {
		for i, e := range rules {
			o.prod[i] = o.productive(e)
			o.null[i] = o.nullable(e)
		}
	}
	return o
}

// writes reports whether tokens have all bytes of text.
func (o *oracle) writes(text string) bool {
	for i := range len(text) {
		if !o.written[text[i]] {
			return false
		}
	}
	return true
}

func (o *oracle) writesOne(runes []Range) bool {
	for _, r := range runes {
		for c := r.Lo; c <= r.Hi; c++ {
			if utf8.ValidRune(c) && o.writes(string(c)) {
				return true
			}
		}
	}
	return false
}

func (o *oracle) productive(e *Expr) bool {
	switch e.Op {
	case Text:
		return o.writes(e.Text)
	case Runes:
		some, known := o.some[e]
		if !known {
			some = o.writesOne(e.Runes)
			o.some[e] = some
		}
		return some
	case Seq:
		for _, s := range e.Sub {
			if !o.productive(s) {
				return false
			}
		}
	case Either:
		for _, s := range e.Sub {
			if o.productive(s) {
				return true
			}
		}
		return false
	case Repeat:
		return e.Min == 0 || o.productive(e.Sub[0])
	case Call:
		return o.prod[e.Rule]
	}
	return true
}

func (o *oracle) nullable(e *Expr) bool {
	switch e.Op {
	case Text:
		return e.Text == ""
	case Runes:
		return false
	case Seq:
		for _, s := range e.Sub {
			if !o.nullable(s) {
				return false
			}
		}
		return true
	case Either:
		for _, s := range e.Sub {
			if o.nullable(s) {
				return true
			}
		}
		return false
	case Repeat:
		return e.Min == 0 || o.nullable(e.Sub[0])
	}
	return o.null[e.Rule]
}

// ask reports whether text matches the rules, and whether it is a prefix of a text that does.
func (o *oracle) ask(text string) (word, prefix bool) {
	o.text, o.memo = text, map[asked]*places{}
	p := o.match(o.rules[0], 0)
	return p.ends.has(len(text)), p.ends.has(len(text)) || p.partial
}

func (o *oracle) match(e *Expr, at int) *places {
	key := asked{e, at}
	if o.memo[key] == nil {
		o.memo[key] = o.try(e, at)
	}
	return o.memo[key]
}

func (o *oracle) try(e *Expr, at int) *places {
	p := &places{}
	left := o.text[at:]
	switch e.Op {
	case Text:
		if !o.writes(e.Text) {
			return p
		}
		if strings.HasPrefix(left, e.Text) {
			p.ends.add(at + len(e.Text))
		} else {
			p.partial = strings.HasPrefix(e.Text, left)
		}
	case Runes:
		for _, r := range e.Runes {
			for c := r.Lo; c <= r.Hi; c++ {
				if !utf8.ValidRune(c) || !o.writes(string(c)) {
					continue
				}
				if s := string(c); strings.HasPrefix(left, s) {
					p.ends.add(at + len(s))
				} else if strings.HasPrefix(s, left) {
					p.partial = true
				}
			}
		}
	case Seq:
		var here spots
		here.add(at)
		for i, s := range e.Sub {
			rest := o.productive(&Expr{Op: Seq, Sub: e.Sub[i+1:]})
			var next spots
			for from := at; from <= len(o.text); from++ {
				if here.has(from) {
					q := o.match(s, from)
					p.partial = p.partial || q.partial && rest
					next.union(&q.ends)
				}
			}
			here = next
		}
		p.ends = here
	case Either:
		for _, s := range e.Sub {
			q := o.match(s, at)
			p.partial = p.partial || q.partial
			p.ends.union(&q.ends)
		}
	case Repeat:
		o.repeat(e, at, p)
	case Call:
		return o.match(o.rules[e.Rule], at)
	}
	return p
}

func (o *oracle) repeat(e *Expr, at int, p *places) {
	least := e.Min
	if o.nullable(e.Sub[0]) {
		least = 0
	}
	var here spots
	here.add(at)
	for n := 0; here != (spots{}); n++ {
		if n >= least {
			p.ends.union(&here)
		}
		if n == e.Max || n > len(o.text)+1 {
			return
		}
		var next spots
		for from := at; from <= len(o.text); from++ {
			if here.has(from) {
				q := o.match(e.Sub[0], from)
				p.partial = p.partial || q.partial
				next.union(&q.ends)
			}
		}
		here = next
	}
}

// pieces are the parts of random texts, rules and tokens.
var pieces = []string{"a", "b", "\"", "aa", "ab", "é", "߿", "ࠀ", "€", "\uffff", "\U00010000", "😀", "c"}

func randomExpr(r *rand.Rand, depth, rules int) *Expr {
	n := 6
	if depth <= 0 {
		n = 2
	}
	if rules > 0 && r.IntN(4) == 0 {
		return &Expr{Op: Call, Rule: r.IntN(rules)}
	}
	subs := func(n int) (s []*Expr) {
		for range n {
			if len(s) > 0 && r.IntN(6) == 0 {
				s = append(s, s[0]) // shared
				continue
			}
			s = append(s, randomExpr(r, depth-1, rules))
		}
		return s
	}
	switch r.IntN(n) {
	case 0:
		text := ""
		for range r.IntN(3) {
			text += pieces[r.IntN(len(pieces))]
		}
		return &Expr{Op: Text, Text: text}
	case 1:
		e := &Expr{Op: Runes}
		for range 1 + r.IntN(2) {
			at := []rune{'a', 'b', 0x7d, 0x7fd, 0xfffd, 0xd7fe, 0x20ac, 0x1f5ff, 0x10fffd}[r.IntN(9)]
			e.Runes = append(e.Runes, Range{Lo: at, Hi: min(at+rune(r.IntN(6)), 0x10ffff)})
		}
		return e
	case 2, 3:
		return &Expr{Op: Seq, Sub: subs(r.IntN(4))}
	case 4:
		return &Expr{Op: Either, Sub: subs(r.IntN(4))}
	}
	e := &Expr{Op: Repeat, Sub: subs(1), Min: r.IntN(3)}
	switch r.IntN(4) {
	case 0:
		e.Max = Unlimited
	case 1:
		e.Min = r.IntN(40)
		e.Max = e.Min + r.IntN(60)
	case 2:
		e.Min = r.IntN(4)
		e.Max = Unlimited
		if r.IntN(2) == 0 {
			e.Max = 1 << 20
		}
	default:
		e.Max = e.Min + r.IntN(3)
	}
	return e
}

func randomRules(r *rand.Rand) Rules {
	n := 1 + r.IntN(4)
	var rules Rules
	for range n {
		rules = append(rules, randomExpr(r, 3, n))
	}
	return rules
}

// countedRules returns short repeats, nested and in sequence.
func countedRules(r *rand.Rand) Rules {
	text := func() *Expr {
		return &Expr{Op: Text, Text: []string{"a", "b", "aa", "ab", "aab"}[r.IntN(5)]}
	}
	repeat := func(e *Expr) *Expr {
		x := &Expr{Op: Repeat, Sub: []*Expr{e}, Min: r.IntN(5)}
		x.Max = x.Min + r.IntN(5)
		switch r.IntN(8) {
		case 0:
			x.Max = Unlimited
		case 1:
			x.Max += 16
		}
		return x
	}
	seq := func(e ...*Expr) *Expr { return &Expr{Op: Seq, Sub: e} }
	either := func(e ...*Expr) *Expr { return &Expr{Op: Either, Sub: e} }
	call := &Expr{Op: Call, Rule: 1}
	bodies := []*Expr{text(), either(text(), text()), repeat(text()), call, seq(text(), call), either(text(), call),
		seq(repeat(text()), text()), {Op: Runes, Runes: []Range{{Lo: 'a', Hi: 'b'}, {Lo: 0xe9, Hi: 0xea}}}}
	body := func() *Expr { return bodies[r.IntN(len(bodies))] }
	deep := either(text(), seq(text(), repeat(&Expr{Op: Call, Rule: 1}), text()))
	return Rules{
		either(seq(repeat(body()), text()), seq(repeat(repeat(body())), repeat(text()), body()), repeat(seq(repeat(body()), text()))),
		[]*Expr{deep, seq(repeat(text()), text()), either(text(), text())}[r.IntN(3)],
	}
}
