package grammar

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// term is an expression in canonical form. Equal expressions become one term. Only calls of
// recursive rules stay calls; a call of any other rule is replaced by the rule's term.
type term struct {
	op       Op
	text     string
	runes    []Range
	sub      []int32 // of a Call: the root of its rule, set when all terms exist
	min, max int32
	rule     int32
}

// terms holds all terms of a grammar. A term has a higher index than its parts, except for calls.
type terms struct {
	all   []term
	known map[string]int32
	roots map[int32]int32 // terms of rule 0 and of each rule that is called

	written  byteSet  // bytes that tokens have; a term that needs another byte matches nothing
	specials []string // contents of special tokens

	nullable []bool  // by term: it matches ""
	nonEmpty []bool  // by term: it matches a text other than ""
	uses     []int32 // by term: how many times it is a part of another
}

// newTerms checks the rules and translates them to terms. Expressions that can't be reached from rule
// 0 become no terms. The errors are those of [Rules.Validate].
func newTerms(rules Rules, limits Limits, written byteSet, specials []string) (*terms, error) {
	g, err := newGraph(rules, limits)
	if err != nil {
		return nil, err
	}
	cyclic := onCycle(len(g.exprs), func(i int32) []int32 { return g.calls[i] })
	// A rule is recursive if its root is on a cycle.
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
	t := &terms{known: map[string]int32{}, roots: map[int32]int32{}, written: written, specials: specials}
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
		if !written.writesUTF8() {
			return nil, fmt.Errorf("%w, or none that the vocabulary's tokens have the bytes for", ErrNothing)
		}
		return nil, ErrNothing
	}
	if r := t.leftRecursive(); r >= 0 {
		return nil, fmt.Errorf("%w: rule %d calls itself before a byte was matched", ErrInvalid, r)
	}
	return t, nil
}

// nothing returns the term that matches no text, empty the term that matches only "".
func (t *terms) nothing() int32 { return t.add(term{op: Either}) }
func (t *terms) empty() int32   { return t.add(term{op: Text}) }

// simple returns the term of e with the parts sub, simplified. It may overwrite sub. A part that
// matches nothing makes a Seq nothing; a part that matches only "" is left out.
func (t *terms) simple(e *Expr, sub []int32) int32 {
	switch e.Op {
	case Text:
		if !t.writes(e.Text) {
			return t.nothing()
		}
		return t.add(term{op: Text, text: e.Text})
	case Special:
		return t.simpleSpecial(e)
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

// simpleSpecial returns the term of e, a Special: a Text if its text has no special token's
// content.
func (t *terms) simpleSpecial(e *Expr) int32 {
	reached, special := make([]bool, len(e.Text)+1), false
	reached[0] = true
	for i := range len(e.Text) {
		for _, c := range contentsAt(t.specials, e.Text, i) {
			special = true
			reached[i+len(c)] = reached[i+len(c)] || reached[i]
		}
		reached[i+1] = reached[i+1] || reached[i] && t.written.has(e.Text[i])
	}
	switch {
	case !reached[len(e.Text)]:
		return t.nothing()
	case !special:
		return t.add(term{op: Text, text: e.Text})
	}
	return t.add(term{op: Special, text: e.Text})
}

// contentsAt returns those of the contents that stand in text at the position at.
func contentsAt(contents []string, text string, at int) (all []string) {
	for _, c := range contents {
		if strings.HasPrefix(text[at:], c) {
			all = append(all, c)
		}
	}
	return all
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

// writesOne reports whether runes have at least one rune all of whose bytes are in tokens. runes
// must be normal (see normalRunes).
func (t *terms) writesOne(runes []Range) bool {
	if t.written.writesUTF8() {
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

// add returns the index of the term x. It adds x if no equal term exists.
func (t *terms) add(x term) int32 {
	key := []byte{byte(x.op)}
	for _, v := range [3]int32{x.min, x.max, x.rule} {
		key = binary.LittleEndian.AppendUint32(key, uint32(v))
	}
	key = append(key, x.text...) // only Text and Special have it, and these have no sub and no runes
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

// analyse sets uses, nullable and nonEmpty of all terms. A recursive rule is nullable or nonEmpty
// only if a text of finite length proves it (the least fixed point).
func (t *terms) analyse() {
	n := len(t.all)
	t.nullable, t.nonEmpty, t.uses = make([]bool, n), make([]bool, n), make([]int32, n)
	for i := range int32(n) {
		for _, s := range t.all[i].sub {
			t.uses[s]++
		}
	}
	t.settle(t.judge)
}

// settle applies judge to the terms until no result changes. A term has a higher index than its
// parts, so one pass settles all terms except those that contain calls. A queue then revisits
// calls, and the terms of which a changed term is a part. A term waits in the queue at most once,
// because it may have a hundred thousand parts.
func (t *terms) settle(judge func(i int32) (nullable, nonEmpty bool)) {
	changes := func(i int32) bool {
		nullable, nonEmpty := judge(i)
		changed := nullable != t.nullable[i] || nonEmpty != t.nonEmpty[i]
		t.nullable[i], t.nonEmpty[i] = nullable, nonEmpty
		return changed
	}
	var work []int32 // a queue
	parents := make([][]int32, len(t.all))
	for i := range int32(len(t.all)) {
		changes(i)
		if t.all[i].op == Call {
			work = append(work, i)
		}
		for _, s := range t.all[i].sub {
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

// judge computes nullable and nonEmpty of term i from those of its parts.
func (t *terms) judge(i int32) (nullable, nonEmpty bool) {
	x := &t.all[i]
	switch x.op {
	case Text, Special:
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

// leftRecursive returns the lowest rule that can call itself before a byte is matched, or -1.
func (t *terms) leftRecursive() int32 {
	cyclic := onCycle(len(t.all), func(i int32) []int32 {
		x := &t.all[i]
		if x.op != Seq {
			return t.all[i].sub
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
