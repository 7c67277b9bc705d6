package grammar

import (
	"math/bits"

	"github.com/coppice-llm/coppice/kv"
)

// Grammar is a compiled grammar with its caches of masks and stacks. It and all its matchers
// may be used by one goroutine at a time.
type Grammar struct {
	stepper
	v      *Vocabulary
	limits Limits
	locals []local
	bottom *cell
	memo   memo

	bufs   [2][]stack
	below  []stack  // scratch of descend: the sets on the path into the trie
	levels []int32  // below[levels[d]:levels[d+1]] is the set at depth d of the path
	bits   []uint64 // scratch of allow
	tables int      // bytes of the locals and of the machine
	work   int      // moves left below the exits, for the mask in construction

	explorer explorer
	free     *free // nil: outputs are texts of the rules
}

func newGrammar(w *walker) *Grammar {
	g := &Grammar{
		stepper: newStepper(w.machine, w.v.longest),
		v:       w.v, limits: w.limits, locals: w.locals, bottom: newBottom(1),
	}
	g.explorer.init(g.machine, w.v.longest)
	g.memo.init(w.limits.Memo/2, w.v.words())
	g.tables = w.bytes + len(g.nodes)*24 + len(g.edges)*8 + len(g.calls)*8
	g.levels = make([]int32, w.v.longest+2)
	g.bits = make([]uint64, w.v.words())
	return g
}

// Bytes estimates the memory of the grammar and its caches.
func (g *Grammar) Bytes() int {
	x := &g.explorer
	return g.tables + len(g.memo.slots)*(g.v.words()*8+128) + g.pool.bytes + len(x.next)*8 + len(x.sets)*24
}

// Vocabulary returns the vocabulary that the grammar was compiled for.
func (g *Grammar) Vocabulary() *Vocabulary { return g.v }

// Matcher tracks one output, token by token.
type Matcher struct {
	g     *Grammar
	set   []stack
	ended bool

	// With Grammar.free:
	inFree bool  // outside of the texts of the rules, at the place spot
	again  bool  // the text of the rules in progress began with a Start
	left   int32 // texts of the rules that may still begin
	spot   spot
}

// NewMatcher returns a matcher at the beginning of an output.
func (g *Grammar) NewMatcher() *Matcher {
	m := &Matcher{g: g}
	m.Reset()
	return m
}

// Reset moves m back to the beginning of an output.
func (m *Matcher) Reset() {
	g := m.g
	if g.free != nil {
		*m = Matcher{g: g, set: m.set[:0], ended: true, inFree: true, left: int32(g.free.Most), spot: g.free.initial()}
		return
	}
	m.set = g.start(m.set[:0], stack{frame{node: g.root}, g.bottom})
	m.ended = g.ended
}

// Clone returns an independent matcher in the same state.
func (m *Matcher) Clone() *Matcher {
	twin := *m
	twin.set = append([]stack(nil), m.set...)
	return &twin
}

// CopyFrom puts m into the state of from, a matcher of the same grammar. Unlike Clone it reuses m's
// memory. It panics if the grammars differ.
func (m *Matcher) CopyFrom(from *Matcher) {
	if m.g != from.g {
		panic("grammar: CopyFrom a matcher of another grammar")
	}
	set := append(m.set[:0], from.set...)
	*m = *from
	m.set = set
}

// CanEnd reports whether the output so far is a complete text of the rules.
func (m *Matcher) CanEnd() bool { return m.ended }

// MustEnd reports whether the output so far is complete and no byte can follow.
func (m *Matcher) MustEnd() bool { return m.ended && len(m.set) == 0 && !m.inFree }

// Accept appends token t to the output and reports whether that is allowed. If not, m is
// unchanged. A token without bytes is never allowed.
func (m *Matcher) Accept(t kv.Token) bool {
	v := m.g.v
	if int64(t) >= int64(v.size) {
		return false
	}
	if m.inFree && v.isSpecial(t) {
		return m.takeSpecial(string(v.code(t)[1:]))
	}
	return m.AcceptBytes(v.code(t))
}

// AcceptBytes is Accept for the bytes b, which need not be a token. It refuses an empty b and one
// of over 1,024 bytes.
func (m *Matcher) AcceptBytes(b []byte) bool {
	g := m.g
	if len(b) == 0 || len(b) > maxTokenBytes {
		return false
	}
	g.trimPool()
	if g.free != nil {
		return m.acceptAround(b)
	}
	return m.acceptRules(b)
}

// acceptRules is AcceptBytes within a text of the rules.
func (m *Matcher) acceptRules(b []byte) bool {
	g, set := m.g, m.set
	for i := range b {
		next := g.step(g.bufs[i&1][:0], set, b[i])
		g.bufs[i&1] = next
		if set = next; len(set) == 0 && (!g.ended || i < len(b)-1) {
			return false
		}
	}
	m.set = append(m.set[:0], set...)
	m.ended = g.ended
	return true
}

// Mask overwrites dst with the set of tokens that Accept would allow. Token t is bit t%64 of word
// t/64. It panics if dst has fewer than (Size+63)/64 words.
func (m *Matcher) Mask(dst []uint64) {
	g := m.g
	dst = dst[:g.v.words()]
	if m.inFree {
		g.maskFree(dst, m.spot)
		return
	}
	if f := m.within(); f != nil {
		clear(dst)
		g.allow(dst, f)
		return
	}
	copy(dst, g.maskOf(m.set).mask)
}

// State returns a key of m's mask: matchers of one grammar with equal States have equal masks.
// Matchers with different States may have equal masks, too.
func (m *Matcher) State() uint64 {
	if m.inFree {
		return m.spot.key()
	}
	if f := m.within(); f != nil {
		return uint64(f.node)<<32 | uint64(min(f.most, m.g.locals[f.node].need))
	}
	return 1<<63 | m.g.maskOf(m.set).number
}

// within returns m's stack if m has only one and no token reaches past the end of its unit. In
// that case allow alone makes the mask. Otherwise within returns nil.
func (m *Matcher) within() *stack {
	if len(m.set) == 1 && len(m.g.locals[m.set[0].node].exits) == 0 {
		return &m.set[0]
	}
	return nil
}

// maskOf returns the slot with the mask of set. It makes the mask if the cache does not have it.
func (g *Grammar) maskOf(set []stack) *remembered {
	s, known := g.memo.find(g.pool, set)
	if known {
		return s
	}
	g.trimPool()
	clear(s.mask)
	for i := range set {
		g.allow(s.mask, &set[i])
	}
	g.work = g.limits.beyond
	for i := range set {
		g.allowBeyond(s.mask, &set[i])
	}
	if g.work <= 0 {
		g.explore(s.mask, set)
	}
	return s
}

// trimPool empties the pool of cells if it is over its half of Limits.Memo.
func (g *Grammar) trimPool() {
	if g.pool.bytes > g.limits.Memo/2 {
		g.pool.forget()
	}
}

// allow adds to dst the tokens that end within the unit of f or at its end. In a counting unit it
// adds only tokens whose need is at most f.most.
func (g *Grammar) allow(dst []uint64, f *stack) {
	l := &g.locals[f.node]
	if l.bits == nil {
		if f.most >= l.need {
			for _, t := range l.tokens {
				dst[t>>6] |= 1 << (t & 63)
			}
			return
		}
		clear(g.bits) // mark the late tokens: both lists may have thousands of entries
		for i := 0; i < len(l.late) && l.late[i].need > f.most; i++ {
			g.bits[l.late[i].token>>6] |= 1 << (l.late[i].token & 63)
		}
		for _, t := range l.tokens {
			dst[t>>6] |= (1 &^ (g.bits[t>>6] >> (t & 63))) << (t & 63)
		}
		return
	}
	if f.most >= l.need {
		or(dst, l.bits)
		return
	}
	if l.upTo != nil && f.most <= fewBodies {
		or(dst, l.upTo[f.most-1])
		return
	}
	copy(g.bits, l.bits)
	for i := 0; i < len(l.late) && l.late[i].need > f.most; i++ {
		g.bits[l.late[i].token>>6] &^= 1 << (l.late[i].token & 63)
	}
	or(dst, g.bits)
}

// allowBeyond adds to dst the allowed tokens that reach past the end of f's unit. It stops when
// g.work is used up.
func (g *Grammar) allowBeyond(dst []uint64, f *stack) {
	exits := g.locals[f.node].exits
	if len(exits) == 0 || f.up.bottom {
		return
	}
	g.below = g.returned(g.below[:0], f.up)
	var first byteSet
	g.work -= len(g.below)
	for i := range g.below {
		of := g.firstOf(&g.nodes[g.below[i].node])
		first.union(&of)
	}
	n := int32(len(g.below))
	for i := 0; i < len(exits); {
		b := exits[i].b
		j := i
		for j < len(exits) && exits[j].b == b {
			j++
		}
		if first.has(b) {
			g.below = g.step(g.below[:n], g.below[:n], b)
			if ended := g.ended; ended || len(g.below) > int(n) {
				for _, e := range exits[i:j] {
					if g.work > 0 && f.least <= e.bodies && e.bodies <= f.most && !g.covers(dst, e.at) {
						g.descend(dst, e.at, n)
					}
				}
			}
		}
		i = j
	}
}

// covers reports whether dst has all tokens at trie node c and in the subtree below it.
func (g *Grammar) covers(dst []uint64, c int32) bool {
	for _, t := range g.v.order[g.v.ends[c]:g.v.ends[g.v.skip[c]]] {
		if dst[t>>6]>>(t&63)&1 == 0 {
			return false
		}
	}
	return true
}

// descend adds to dst the allowed tokens at trie node c and in the subtree below it.
// g.below[from:] is the set of stacks after the last byte of c. descend stops when g.work is used
// up.
func (g *Grammar) descend(dst []uint64, c, from int32) {
	v := g.v
	for _, t := range v.order[v.ends[c]:v.ends[c+1]] {
		dst[t>>6] |= 1 << (t & 63)
	}
	top := v.label[c] >> 8
	end := int32(len(g.below))
	g.levels[top], g.levels[top+1] = from, end
	for i := c + 1; i < v.skip[c] && g.work > 0; {
		depth := v.label[i] >> 8
		set := g.below[g.levels[depth-1]:g.levels[depth]]
		g.below = g.step(g.below[:g.levels[depth]], set, byte(v.label[i]))
		g.work -= max(len(set)+1, g.stepper.work/64)
		if len(g.below) == int(g.levels[depth]) && !g.ended {
			i = v.skip[i]
			continue
		}
		g.levels[depth+1] = int32(len(g.below))
		for _, t := range v.order[v.ends[i]:v.ends[i+1]] {
			dst[t>>6] |= 1 << (t & 63)
		}
		i++
	}
	g.below = g.below[:end]
}

func or(dst, src []uint64) {
	src = src[:len(dst)]
	for i, w := range src {
		dst[i] |= w
	}
}

// appendBits appends to dst the tokens whose bits are set in w. The parameter word is the index
// of w in its mask.
func appendBits(dst []kv.Token, word int, w uint64) []kv.Token {
	for ; w != 0; w &= w - 1 {
		dst = append(dst, kv.Token(word*64+bits.TrailingZeros64(w)))
	}
	return dst
}
