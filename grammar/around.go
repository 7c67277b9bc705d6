package grammar

import (
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// surround makes outputs of g free text around texts of its rules. It returns an error if no text
// of the rules begins with one of f's beginnings.
func (g *Grammar) surround(f *free) error {
	begins := make([]string, 0, len(f.Marks)+len(f.Starts))
	begins = append(begins, f.Marks...)
	for _, s := range f.Starts {
		begins = append(begins, s.As)
	}
	for _, text := range begins {
		m := &Matcher{g: g, set: g.start(nil, stack{frame{node: g.root}, g.bottom})}
		if !m.acceptRules([]byte(text)) || m.ended {
			return fmt.Errorf("%w: no text of the rules begins with %.100q and goes on, though free text may", ErrInvalid, text)
		}
		f.begun = append(f.begun, m.set)
	}
	f.all = make([]uint64, g.v.words())
	for _, t := range g.v.order {
		f.all[t>>6] |= 1 << (t & 63)
	}
	g.free = f
	return nil
}

// acceptAround is AcceptBytes for free text around texts of the rules.
func (m *Matcher) acceptAround(b []byte) bool {
	if !m.inFree {
		if !m.acceptRules(b) {
			return false
		}
		m.leave()
		return true
	}
	at, hit := m.spot, int32(-1)
	for i := range b {
		if at, hit = m.g.free.next(at, b[i]); hit >= 0 {
			return m.enter(hit, b[i+1:])
		}
	}
	m.spot = at
	return true
}

// takeSpecial is Accept in free text for a special token with this content.
func (m *Matcher) takeSpecial(content string) bool {
	to, hit, ok := m.g.free.takes(m.spot, content)
	if !ok {
		return false
	}
	if hit >= 0 {
		return m.enter(hit, nil)
	}
	m.spot = to
	return true
}

// enter begins a text of the rules with a beginning of free.begun and the bytes rest after it. It
// reports whether the rules allow them; if not, m is unchanged.
func (m *Matcher) enter(hit int32, rest []byte) bool {
	f := m.g.free
	before := *m
	m.set = append([]stack(nil), f.begun[hit]...)
	m.ended, m.inFree, m.again = false, false, int(hit) >= len(f.Marks)
	if len(rest) > 0 && !m.acceptRules(rest) {
		*m = before
		return false
	}
	m.leave()
	return true
}

// leave returns to free text if a text of the rules is complete and another may begin.
func (m *Matcher) leave() {
	if !m.ended || len(m.set) > 0 {
		return
	}
	if m.left--; m.left == 0 {
		return
	}
	m.inFree, m.spot = true, spot{start: outside}
	if m.again {
		m.spot = spot{start: again}
	}
}

// key returns the spot as a key of masks, apart from those of Matcher.State within the rules.
func (s spot) key() uint64 {
	key := uint64(1)<<62 | uint64(s.start+1)<<32 | uint64(s.mark)<<1
	if s.quiet {
		key |= 1
	}
	return key
}

// maskFree overwrites dst with the tokens that may follow at the spot s of free text: all but
// those with a beginning that go on as the rules do not.
func (g *Grammar) maskFree(dst []uint64, s spot) {
	f := g.free
	refused, known := f.refused[s]
	if !known {
		if len(f.refused) >= mostRefused {
			clear(f.refused)
		}
		refused = g.refusedAt(s)
		f.refused[s] = refused
	}
	copy(dst, f.all)
	for _, t := range refused {
		dst[t>>6] &^= 1 << (t & 63)
	}
}

// mostRefused bounds free.refused. An output has few spots: of its beginning and of marks.
const mostRefused = 256

// refusedAt returns the tokens that may not follow at the spot s. It walks only those parts of the
// trie that have tokens long enough to complete a beginning.
func (g *Grammar) refusedAt(s spot) (refused []kv.Token) {
	f, v := g.free, g.v
	path := make([]spot, v.longest+1)
	path[0] = s
	for i := int32(1); int(i) < len(v.label); {
		depth := v.label[i] >> 8
		to, hit := f.next(path[depth-1], byte(v.label[i]))
		switch {
		case hit >= 0:
			refused = g.refusedAfter(refused, hit, i)
			i = v.skip[i]
		case f.least(to) > int32(v.deep[i])-int32(depth):
			i = v.skip[i]
		default:
			path[depth] = to
			i++
		}
	}
	for _, t := range v.specials {
		if _, _, ok := f.takes(s, string(v.code(t)[1:])); !ok {
			refused = append(refused, t)
		}
	}
	return refused
}

// refusedAfter appends to dst the tokens at trie node i and below it that the rules do not allow
// when the beginning hit ends at i.
func (g *Grammar) refusedAfter(dst []kv.Token, hit, i int32) []kv.Token {
	v := g.v
	g.trimPool()
	clear(g.bits)
	g.below = append(g.below[:0], g.free.begun[hit]...)
	g.work = g.limits.beyond
	g.descend(g.bits, i, 0)
	for _, t := range v.order[v.ends[i]:v.ends[v.skip[i]]] {
		if g.bits[t>>6]>>(t&63)&1 == 0 && !v.isSpecial(t) {
			dst = append(dst, t)
		}
	}
	return dst
}
