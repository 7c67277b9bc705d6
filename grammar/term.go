package grammar

import (
	"encoding/binary"
	"fmt"
)

// term is an expression in canonical form: equal ones are one, and calls are left
// only of rules that call themselves, others being the term of their rule.
type term struct {
	op       Op
	text     string
	runes    []Range
	sub      []int32 // of a Call, once all are made: the root of its rule
	min, max int32
	rule     int32
}

// terms are all terms of a grammar, parts before wholes (but for calls).
type terms struct {
	all   []term
	known map[string]int32
	roots map[int32]int32 // term of rule 0 and of each rule that is called

	written byteSet // the bytes that tokens have: what needs others matches nothing

	nullable []bool // matches ""
	nonEmpty []bool // matches something else
	uses     []int32
}

func newTerms(rules Rules, limits Limits, written byteSet) (*terms, error) {
	g, err := newGraph(rules, limits)
	if err != nil {
		return nil, err
	}
	cyclic := onCycle(len(g.exprs), func(i int32) []int32 { return g.calls[i] })
	// A rule may be called by its root alone, so it is the root's cycle that counts.
	recursive := func(i int32) bool { return cyclic[g.roots[g.exprs[i].Rule]] }
	reached, _ := postorder(len(g.exprs), g.roots[:1], func(i int32) []int32 { return g.calls[i] })
	roots := []int32{g.roots[0]}
	for _, i := range reached {
		if e := g.exprs[i]; e.Op == Call && recursive(i) {
			roots = append(roots, g.roots[e.Rule])
		}
	}
	order, _ := postorder(len(g.exprs), roots, func(i int32) []int32 {
		if g.exprs[i].Op == Call && recursive(i) {
			return nil
		}
		return g.calls[i]
	})
	t := &terms{known: map[string]int32{}, roots: map[int32]int32{}, written: written}
	made := make([]int32, len(g.exprs))
	for _, i := range order {
		e := g.exprs[i]
		if e.Op == Call {
			if recursive(i) {
				t.roots[int32(e.Rule)] = -1
				made[i] = t.add(term{op: Call, rule: int32(e.Rule)})
			} else {
				made[i] = made[g.roots[e.Rule]]
			}
			continue
		}
		sub := make([]int32, len(g.subs[i]))
		for j, s := range g.subs[i] {
			sub[j] = made[s]
		}
		made[i] = t.simple(e, sub)
	}
	t.roots[0] = -1
	for r := range t.roots {
		t.roots[r] = made[g.roots[r]]
	}
	for i := range t.all {
		if x := &t.all[i]; x.op == Call {
			x.sub = []int32{t.roots[x.rule]}
		}
	}
	t.analyse()
	if root := t.roots[0]; !t.nullable[root] && !t.nonEmpty[root] {
		if written != allBytes {
			return nil, fmt.Errorf("%w, or none that the vocabulary's tokens have the bytes for", ErrNothing)
		}
		return nil, ErrNothing
	}
	if r := t.leftRecursive(); r >= 0 {
		return nil, fmt.Errorf("%w: rule %d calls itself before a byte was matched", ErrInvalid, r)
	}
	return t, nil
}

// nothing and empty are the terms that match nothing and "".
func (t *terms) nothing() int32 { return t.add(term{op: Either}) }
func (t *terms) empty() int32   { return t.add(term{op: Text}) }

// simple is the term of e with parts sub, which it may change.
func (t *terms) simple(e *Expr, sub []int32) int32 {
	switch e.Op {
	case Text:
		if !t.writes(e.Text) {
			return t.nothing()
		}
		return t.add(term{op: Text, text: e.Text})
	case Runes:
		runes := normalRunes(e.Runes)
		if !t.writesOne(runes) {
			return t.nothing()
		}
		if len(runes) == 1 && runes[0].Lo == runes[0].Hi {
			return t.add(term{op: Text, text: string(runes[0].Lo)})
		}
		return t.add(term{op: Runes, runes: runes})
	case Seq:
		kept := sub[:0]
		for _, s := range sub {
			if s == t.nothing() {
				return s
			}
			if s != t.empty() {
				kept = append(kept, s)
			}
		}
		if len(kept) == 0 {
			return t.empty()
		}
		if len(kept) == 1 {
			return kept[0]
		}
		return t.add(term{op: Seq, sub: kept})
	case Either:
		kept := sub[:0]
		seen := make(map[int32]bool, len(sub))
		for _, s := range sub {
			if s != t.nothing() && !seen[s] {
				seen[s] = true
				kept = append(kept, s)
			}
		}
		if len(kept) == 1 {
			return kept[0]
		}
		return t.add(term{op: Either, sub: kept})
	}
	if e.Max == 0 || sub[0] == t.empty() || sub[0] == t.nothing() && e.Min == 0 {
		return t.empty()
	}
	if sub[0] == t.nothing() || e.Min == 1 && e.Max == 1 {
		return sub[0]
	}
	return t.add(term{op: Repeat, sub: sub, min: int32(e.Min), max: int32(e.Max)})
}

// writes reports whether tokens have all bytes of text.
func (t *terms) writes(text string) bool {
	for i := range len(text) {
		if !t.written.has(text[i]) {
			return false
		}
	}
	return true
}

// writesOne reports whether tokens have the bytes of one of runes, which are normal.
func (t *terms) writesOne(runes []Range) bool {
	if t.written == allBytes {
		return len(runes) > 0
	}
	var seqs [][]span
	for _, r := range runes {
		seqs = appendUTF8(seqs[:0], r)
	next:
		for _, seq := range seqs {
			for _, s := range seq {
				if !t.written.any(s) {
					continue next
				}
			}
			return true
		}
	}
	return false
}

// add is the number of x, which it has had before or gets now.
func (t *terms) add(x term) int32 {
	key := []byte{byte(x.op)}
	for _, v := range [3]int32{x.min, x.max, x.rule} {
		key = binary.LittleEndian.AppendUint32(key, uint32(v))
	}
	key = append(key, x.text...) // only of Text; what follows never is
	for _, s := range x.sub {
		key = binary.LittleEndian.AppendUint32(key, uint32(s))
	}
	for _, r := range x.runes {
		key = binary.LittleEndian.AppendUint32(key, uint32(r.Lo))
		key = binary.LittleEndian.AppendUint32(key, uint32(r.Hi))
	}
	if i, known := t.known[string(key)]; known {
		return i
	}
	i := int32(len(t.all))
	t.known[string(key)] = i
	t.all = append(t.all, x)
	return i
}

// edges are the terms that i is made of, a called rule among them.
func (t *terms) edges(i int32) []int32 {
	return t.all[i].sub
}

// analyse finds nullable and nonEmpty, the least that satisfy the rules, and uses.
func (t *terms) analyse() {
	n := len(t.all)
	t.nullable, t.nonEmpty, t.uses = make([]bool, n), make([]bool, n), make([]int32, n)
	for i := range int32(n) {
		for _, s := range t.edges(i) {
			t.uses[s]++
		}
	}
	t.settle(t.judge)
}

// settle judges all terms until nothing changes. Parts come before wholes, so that once is
// enough for all but what calls stand in: a whole is not judged anew for each of its parts,
// of which it may have a hundred thousand.
func (t *terms) settle(judge func(i int32) (nullable, nonEmpty bool)) {
	changes := func(i int32) bool {
		nullable, nonEmpty := judge(i)
		changed := nullable != t.nullable[i] || nonEmpty != t.nonEmpty[i]
		t.nullable[i], t.nonEmpty[i] = nullable, nonEmpty
		return changed
	}
	var work []int32 // first in, first out
	parents := make([][]int32, len(t.all))
	for i := range int32(len(t.all)) {
		changes(i)
		if t.all[i].op == Call {
			work = append(work, i)
		}
		for _, s := range t.edges(i) {
			if p := parents[s]; len(p) == 0 || p[len(p)-1] != i {
				parents[s] = append(p, i)
			}
		}
	}
	waits := make([]bool, len(t.all))
	for ; len(work) > 0; work = work[1:] {
		i := work[0]
		if waits[i] = false; !changes(i) {
			continue
		}
		for _, p := range parents[i] {
			if !waits[p] {
				waits[p] = true
				work = append(work, p)
			}
		}
	}
}

// judge is nullable and nonEmpty of i by those of its parts.
func (t *terms) judge(i int32) (nullable, nonEmpty bool) {
	x := &t.all[i]
	switch x.op {
	case Text:
		return x.text == "", x.text != ""
	case Runes:
		return false, true
	case Seq:
		nullable = true
		for _, s := range x.sub {
			if !t.nullable[s] && !t.nonEmpty[s] {
				return false, false
			}
			nullable = nullable && t.nullable[s]
			nonEmpty = nonEmpty || t.nonEmpty[s]
		}
		return nullable, nonEmpty
	case Either:
		for _, s := range x.sub {
			nullable = nullable || t.nullable[s]
			nonEmpty = nonEmpty || t.nonEmpty[s]
		}
		return nullable, nonEmpty
	case Repeat:
		return x.min == 0 || t.nullable[x.sub[0]], t.nonEmpty[x.sub[0]]
	}
	return t.nullable[x.sub[0]], t.nonEmpty[x.sub[0]]
}

// leftRecursive is a rule that calls itself before a byte was matched, or -1.
func (t *terms) leftRecursive() int32 {
	cyclic := onCycle(len(t.all), func(i int32) []int32 {
		x := &t.all[i]
		if x.op != Seq {
			return t.edges(i)
		}
		n := 0
		for n < len(x.sub)-1 && t.nullable[x.sub[n]] {
			n++
		}
		return x.sub[:n+1]
	})
	found := int32(-1)
	for rule, root := range t.roots {
		if cyclic[root] && (found < 0 || rule < found) {
			found = rule
		}
	}
	return found
}
