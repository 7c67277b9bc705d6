package jsonschema

import (
	"maps"
	"math/rand"
	"slices"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/internal/runeset"
)

// matches reports whether rules match all of text, by exhaustive search. It is the oracle of
// rules.
func matches(rules grammar.Rules, text string) bool {
	m := &matcher{rules, text, make(map[place][]int)}
	return slices.Contains(m.ends(rules[0], 0), len(text))
}

type matcher struct {
	rules grammar.Rules
	text  string
	memo  map[place][]int
}

type place struct {
	e  *grammar.Expr
	at int
}

// ends returns the positions in the text where e may end if it begins at the position at.
func (m *matcher) ends(e *grammar.Expr, at int) []int {
	key := place{e, at}
	if ends, ok := m.memo[key]; ok {
		return ends
	}
	set := make(map[int]bool)
	switch e.Op {
	case grammar.Text, grammar.Special:
		if len(m.text)-at >= len(e.Text) && m.text[at:at+len(e.Text)] == e.Text {
			set[at+len(e.Text)] = true
		}
	case grammar.Runes:
		r, n := utf8.DecodeRuneInString(m.text[at:])
		if n > 0 && (r != utf8.RuneError || n > 1) && runeset.Set(e.Runes).Has(r) {
			set[at+n] = true
		}
	case grammar.Seq:
		set[at] = true
		for _, s := range e.Sub {
			set = m.step(s, set)
		}
	case grammar.Either:
		for _, s := range e.Sub {
			for _, end := range m.ends(s, at) {
				set[end] = true
			}
		}
	case grammar.Repeat:
		m.repeats(e, at, set)
	case grammar.Call:
		for _, end := range m.ends(m.rules[e.Rule], at) {
			set[end] = true
		}
	}
	ends := slices.Sorted(maps.Keys(set))
	m.memo[key] = ends
	return ends
}

func (m *matcher) step(e *grammar.Expr, from map[int]bool) map[int]bool {
	to := make(map[int]bool)
	for at := range from {
		for _, end := range m.ends(e, at) {
			to[end] = true
		}
	}
	return to
}

func (m *matcher) repeats(e *grammar.Expr, at int, set map[int]bool) {
	now := map[int]bool{at: true}
	for n := 0; len(now) > 0; n++ {
		before := len(set)
		if n >= e.Min {
			maps.Copy(set, now)
		}
		if n == e.Max || n > e.Min && len(set) == before {
			return
		}
		now = m.step(e.Sub[0], now)
	}
}

// emitter writes random texts that rules match.
type emitter struct {
	rules grammar.Rules
	rand  *rand.Rand
	least []int // bytes of each rule's shortest text
	out   []byte
	soft  int // after this many bytes, it ends the text as soon as possible
}

const endless = 1 << 40

func newEmitter(rules grammar.Rules, r *rand.Rand) *emitter {
	g := &emitter{rules: rules, rand: r, least: make([]int, len(rules))}
	for i := range g.least {
		g.least[i] = endless
	}
	for changed := true; changed; {
		changed = false
		for i, e := range rules {
			if n := g.shortest(e); n < g.least[i] {
				g.least[i], changed = n, true
			}
		}
	}
	return g
}

func (g *emitter) shortest(e *grammar.Expr) int {
	n := 0
	switch e.Op {
	case grammar.Text, grammar.Special:
		n = len(e.Text)
	case grammar.Runes:
		n = 1
	case grammar.Seq:
		for _, s := range e.Sub {
			n += g.shortest(s)
		}
	case grammar.Either:
		n = endless
		for _, s := range e.Sub {
			n = min(n, g.shortest(s))
		}
	case grammar.Repeat:
		if e.Min > 0 {
			n = e.Min * g.shortest(e.Sub[0])
		}
	case grammar.Call:
		n = g.least[e.Rule]
	}
	return min(n, endless)
}

func (g *emitter) text(soft int) string {
	g.out, g.soft = g.out[:0], soft
	g.emit(g.rules[0])
	return string(g.out)
}

func (g *emitter) emit(e *grammar.Expr) {
	over := len(g.out) > g.soft
	switch e.Op {
	case grammar.Text, grammar.Special:
		g.out = append(g.out, e.Text...)
	case grammar.Runes:
		g.out = utf8.AppendRune(g.out, g.rune(e.Runes))
	case grammar.Seq:
		for _, s := range e.Sub {
			g.emit(s)
		}
	case grammar.Either:
		best := e.Sub[g.rand.Intn(len(e.Sub))]
		if over || g.shortest(best) == endless {
			for _, s := range e.Sub {
				if g.shortest(s) < g.shortest(best) {
					best = s
				}
			}
		}
		g.emit(best)
	case grammar.Repeat:
		n := e.Min
		for !over && g.shortest(e.Sub[0]) < endless && (e.Max == grammar.Unlimited || n < e.Max) && g.rand.Intn(3) > 0 {
			n++
		}
		if e.Max != grammar.Unlimited && g.rand.Intn(8) == 0 && e.Max < 50 && !over && g.shortest(e.Sub[0]) < endless {
			n = e.Max
		}
		for range n {
			g.emit(e.Sub[0])
		}
	case grammar.Call:
		g.emit(g.rules[e.Rule])
	}
}

// rune returns a random rune of ranges, more often a bound of a range or ASCII.
func (g *emitter) rune(ranges []grammar.Range) rune {
	for {
		s := ranges[g.rand.Intn(len(ranges))]
		r := s.Lo + rune(g.rand.Intn(int(s.Hi-s.Lo)+1))
		switch g.rand.Intn(4) {
		case 0:
			r = s.Lo
		case 1:
			r = s.Hi
		case 2:
			r = min(s.Hi, s.Lo+rune(g.rand.Intn(100)))
		}
		if utf8.ValidRune(r) {
			return r
		}
	}
}
