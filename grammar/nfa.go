package grammar

import (
	"fmt"

	"github.com/coppice-llm/coppice/internal/bail"
)

// nfa is a unit's automaton by Thompson's construction; state 0 is the start, 1 the end.
type nfa struct {
	head []int32 // by state: its first arc, -1 for none
	arcs []arc
}

// arc is a transition to state to: by a byte from lo to hi, by a call, or by nothing.
type arc struct {
	next, to int32 // next is the state's next arc, -1 for none
	target   int32 // of a call; byBytes or byNothing (epsilon) otherwise
	lo, hi   byte
}

const (
	byBytes   = -1
	byNothing = -2
)

func newNFA() *nfa { return &nfa{head: []int32{-1, -1}} }

func (n *nfa) state() int32 {
	n.head = append(n.head, -1)
	return int32(len(n.head) - 1)
}

func (n *nfa) arc(from int32, a arc) {
	a.next = n.head[from]
	n.head[from] = int32(len(n.arcs))
	n.arcs = append(n.arcs, a)
}

func (n *nfa) skip(from, to int32)           { n.arc(from, arc{to: to, target: byNothing}) }
func (n *nfa) call(from, to int32, id int32) { n.arc(from, arc{to: to, target: id}) }

// thompson builds one unit's nfa from terms. Its recursion is as deep as a unit's terms nest,
// which plan bounds (maxHeight).
type thompson struct {
	*nfa
	*plan
}

// bytes adds arcs for the bytes of s that some token has. The arcs lead from the state from to
// the state to.
func (b *thompson) bytes(from, to int32, s span) {
	written := &b.terms.written
	for lo := int(s.lo); lo <= int(s.hi); lo++ {
		if !written.has(byte(lo)) {
			continue
		}
		hi := lo
		for hi < int(s.hi) && written.has(byte(hi+1)) {
			hi++
		}
		b.arc(from, arc{to: to, target: byBytes, lo: byte(lo), hi: byte(hi)})
		lo = hi
	}
}

// put adds a path for term i that leads from the state from to the state to. It adds no arc into
// from, so that paths put side by side stay separate. It bails out with an error that wraps ErrTooLarge.
func (b *thompson) put(i, from, to int32) {
	if unit := b.unitOf[i]; unit >= 0 {
		b.enter(i, b.target(target{unit: unit}), from, to)
	} else {
		b.putOpen(i, from, to)
	}
}

// enter adds a call of target for term i, and an epsilon arc around the call if the term matches
// "".
func (b *thompson) enter(i, target, from, to int32) {
	if b.terms.nonEmpty[i] {
		b.call(from, to, target)
	}
	if b.terms.nullable[i] {
		b.skip(from, to)
	}
}

// putOpen is put, but it builds the path from the term's parts even if the term is a unit. The
// automaton of a unit is built in this way.
func (b *thompson) putOpen(i, from, to int32) {
	if len(b.head)+len(b.arcs)/16 > b.limits.Nodes {
		bail.Out(fmt.Errorf("%w: an automaton of over %d states (Limits.Nodes): use smaller repeats or fewer alternatives", ErrTooLarge, b.limits.Nodes))
	}
	x := &b.terms.all[i]
	switch x.op {
	case Text:
		if x.text == "" {
			b.skip(from, to)
		}
		for j := range len(x.text) {
			next := to
			if j < len(x.text)-1 {
				next = b.state()
			}
			b.bytes(from, next, span{x.text[j], x.text[j]})
			from = next
		}
	case Runes:
		b.putRunes(x.runes, from, to)
	case Special:
		b.putSpecial(x.text, from, to)
	case Seq:
		for j, s := range x.sub {
			next := to
			if j < len(x.sub)-1 {
				next = b.state()
			}
			b.put(s, from, next)
			from = next
		}
	case Either:
		for _, s := range x.sub {
			b.put(s, from, to)
		}
	case Repeat:
		b.putRepeat(i, from, to)
	case Call:
		b.enter(i, b.target(target{unit: b.ruleUnit[x.rule]}), from, to)
	}
}

// putSpecial adds paths for the bytes of text, and around each special token's content in it a
// path for that token.
func (b *thompson) putSpecial(text string, from, to int32) {
	at := []int32{from}
	for range len(text) - 1 {
		at = append(at, b.state())
	}
	at = append(at, to)
	for i := range len(text) {
		b.bytes(at[i], at[i+1], span{text[i], text[i]})
		for _, c := range contentsAt(b.terms.specials, text, i) {
			last := at[i]
			for j, code := 0, string([]byte{specialByte})+c; j < len(code); j++ {
				next := at[i+len(c)]
				if j < len(code)-1 {
					next = b.state()
				}
				b.arc(last, arc{to: next, target: byBytes, lo: code[j], hi: code[j]})
				last = next
			}
		}
	}
}

// putRepeat adds a path for the repeat i. A repeat that counts is a call of its counting unit.
// Any other repeat is unrolled: first the required copies of its body in sequence, then a loop or
// optional copies. If the body matches "", no copy is required, since all copies may match "".
func (b *thompson) putRepeat(i, from, to int32) {
	x := &b.terms.all[i]
	sub := x.sub[0]
	if !b.terms.nonEmpty[sub] {
		if b.terms.nullable[i] {
			b.skip(from, to)
		}
		return
	}
	if counter, counts := b.counters[i]; counts {
		b.enter(i, b.target(counter), from, to)
		return
	}
	least := x.min
	if b.terms.nullable[sub] {
		least = 0
	}
	for range least {
		next := b.state()
		b.put(sub, from, next)
		from = next
	}
	if x.max == Unlimited {
		loop := b.state()
		b.skip(from, loop)
		b.skip(loop, to)
		b.put(sub, loop, loop)
		return
	}
	for range x.max - least {
		next := b.state()
		b.skip(from, to)
		b.put(sub, from, next)
		from = next
	}
	b.skip(from, to)
}

// putRunes adds paths for the UTF-8 of runes. Sequences with the same last bytes share states.
func (b *thompson) putRunes(runes []Range, from, to int32) {
	type tail struct {
		n     int
		spans [3]span
	}
	tails := map[tail]int32{}
	var seqs [][]span
	for _, r := range runes {
		seqs = appendUTF8(seqs[:0], r)
		for _, seq := range seqs {
			at := from
			for j, s := range seq {
				next := to
				if j < len(seq)-1 {
					key := tail{n: len(seq) - 1 - j}
					copy(key.spans[:], seq[j+1:])
					known := false
					if next, known = tails[key]; !known {
						next = b.state()
						tails[key] = next
					} else {
						b.bytes(at, next, s)
						break // the path from next to to exists
					}
				}
				b.bytes(at, next, s)
				at = next
			}
		}
	}
}
