package grammar

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// local is what can be said of the tokens after a node without knowing what is below
// it on the stack: found once by walking the vocabulary's trie.
//
// In a counting unit the counts are not known either. Then a token needs a count: it
// is allowed where at least that many more bodies may come.
type local struct {
	bits   []uint64   // tokens that end within the unit or with it; nil if they are few:
	tokens []kv.Token // then here
	exits  []exit     // where tokens go on after the unit's end, ascending by next byte
	late   []late     // tokens that need more than fewBodies or, without upTo, than 1; descending
	upTo   [][]uint64 // [n-1]: bits of those tokens that need at most n
	need   int32      // the most that a token needs
}

// exit is a trie node with byte b; before it a unit may end, after so many bodies.
type exit struct {
	at, bodies int32
	b          byte
}

type late struct {
	need  int32
	token kv.Token
}

const (
	fewBodies = 16 // needs that have bitmaps of their own,
	manyLate  = 2  // if there are more late tokens than that for each word of a mask
)

// walker walks the trie from each node in turn. The sets of stacks on the way are
// numbered, and remembered with where bytes lead, so that most steps are a look into
// a table.
type walker struct {
	stepper
	v       *Vocabulary
	limits  Limits
	class   [256]uint8
	classes int
	outside *cell // what a unit that does not count returns to, whatever it is
	follow  []byteSet

	known  map[uint64]int32
	states []walked
	next   []int32 // [state*classes+class]: 0 not known, dead, or a state
	sets   []stack

	node   int32 // being walked
	at     int32 // trie node to look at; 0 before a walk
	path   []int32
	bits   []uint64
	count  int
	late   []late
	exits  []exit
	locals []local
	bytes  int // of locals
}

// walked is a numbered set.
type walked struct {
	from, to int32 // sets[from:to]
	need     int32
	exits    []int32
}

const dead = -1

func newWalker(m *machine, v *Vocabulary, limits Limits) *walker {
	w := &walker{
		stepper: newStepper(m, v.longest),
		v:       v, limits: limits, outside: newBottom(3),
		path: make([]int32, v.longest+1), bits: make([]uint64, v.words()),
		locals: make([]local, len(m.nodes)),
	}
	w.class, w.classes = m.classes()
	w.follow = m.follows()
	w.forget()
	return w
}

// forget drops the numbered sets.
func (w *walker) forget() {
	w.pool.forget()
	w.known = map[uint64]int32{}
	w.states = append(w.states[:0], walked{}) // 0 is none
	w.next = append(w.next[:0], make([]int32, w.classes)...)
	w.sets = w.sets[:0]
}

// run does about *work units of work.
func (w *walker) run(work *int) (done bool, err error) {
	for *work > 0 {
		for w.at == 0 {
			if int(w.node) == len(w.nodes) {
				return true, nil
			}
			if w.nodes[w.node].flags&rest == 0 {
				w.node++
				continue
			}
			w.begin()
		}
		*work--
		if err := w.walk(work); err != nil {
			return false, err
		}
		if int(w.at) == len(w.v.label) {
			w.keep()
			w.at = 0
			w.node++
			*work -= len(w.bits) / 256
			if w.bytes > w.limits.Bytes {
				return false, fmt.Errorf("%w: tables of over %d bytes (Limits.Bytes): use fewer different parts", ErrTooLarge, w.limits.Bytes)
			}
		}
	}
	return false, nil
}

// begin starts the walk of w.node.
func (w *walker) begin() {
	if len(w.next)*4 > w.limits.Bytes/8 || w.pool.bytes > w.limits.Bytes/8 {
		w.forget()
	}
	up := w.outside
	if n := &w.nodes[w.node]; w.nodes[w.units[n.unit].start].flags&boundary != 0 {
		up = w.unknown
	}
	clear(w.bits)
	w.count, w.late, w.exits = 0, w.late[:0], w.exits[:0]
	w.path[0] = w.number([]stack{{frame{node: w.node}, up}})
	w.at = 1
}

// walk goes on through the trie until its end, or until the work is done.
func (w *walker) walk(work *int) error {
	v, i := w.v, w.at
	defer func() { w.at = i }()
	for int(i) < len(v.label) {
		stop := min(int(i)+256, len(v.label))
		for int(i) < stop {
			label := v.label[i]
			depth := label >> 8
			slot := int(w.path[depth-1])*w.classes + int(w.class[byte(label)])
			state := w.next[slot]
			if state == 0 {
				state = w.discover(w.path[depth-1], slot, byte(label))
				*work -= 1 + w.stepper.work/64
			}
			if state == dead {
				i = v.skip[i]
				continue
			}
			w.path[depth] = state
			s := &w.states[state]
			if from, to := v.ends[i], v.ends[i+1]; from < to {
				w.allow(v.order[from:to], s.need)
			}
			if len(s.exits) > 0 {
				w.exitsBelow(i, s.exits)
			}
			if s.from == s.to {
				i = v.skip[i]
			} else {
				i++
			}
		}
		if w.overflow {
			return fmt.Errorf("%w: over %d ways to read one text: make alternatives begin differently", ErrTooLarge, maxStacks)
		}
		if len(w.next)*4+len(w.sets)*24 > w.limits.Bytes || w.pool.bytes > w.limits.Bytes {
			return fmt.Errorf("%w: tables of over %d bytes while compiling (Limits.Bytes): make alternatives begin differently", ErrTooLarge, w.limits.Bytes)
		}
		if *work -= 8; *work <= 0 {
			return nil
		}
	}
	return nil
}

func (w *walker) allow(tokens []kv.Token, need int32) {
	for _, t := range tokens {
		w.bits[t>>6] |= 1 << (t & 63)
		if need > 1 {
			w.late = append(w.late, late{need, t})
		}
	}
	w.count += len(tokens)
}

func (w *walker) exitsBelow(i int32, exits []int32) {
	follow := &w.follow[w.nodes[w.node].unit]
	for c := i + 1; c < w.v.skip[i]; c = w.v.skip[c] {
		if b := byte(w.v.label[c]); follow.has(b) {
			for _, bodies := range exits {
				w.exits = append(w.exits, exit{c, bodies, b})
			}
		}
	}
}

// discover finds where a state leads by b, and notes it in slot.
func (w *walker) discover(state int32, slot int, b byte) int32 {
	s := w.states[state]
	n := len(w.sets)
	w.sets = w.step(w.sets, w.sets[s.from:s.to], b)
	to := int32(dead)
	if len(w.sets) > n || w.ended || len(w.stepper.exits) > 0 {
		set := w.sets[n:]
		w.sets = w.sets[:n]
		to = w.number(set)
	}
	w.next[slot] = to
	return to
}

// number is the number of a set with what the last step says of its end. The set is
// copied; it may lie just behind w.sets.
func (w *walker) number(set []stack) int32 {
	exits := w.stepper.exits
	if w.ended {
		exits = append(exits, 0)
	}
	slices.Sort(exits)
	exits = slices.Compact(exits)
	if w.at == 0 { // before the first byte
		exits = nil
	}
	h := uint64(len(exits))
	for _, e := range exits {
		h = mix(h ^ uint64(e))
	}
	for i := range set {
		h = set[i].hashed(h)
	}
	for ; ; h++ {
		i, known := w.known[h]
		if !known {
			break
		}
		if s := &w.states[i]; slices.Equal(w.sets[s.from:s.to], set) && slices.Equal(s.exits, exits) {
			return i
		}
	}
	id := int32(len(w.states))
	w.known[h] = id
	s := walked{from: int32(len(w.sets)), exits: slices.Clone(exits)}
	w.sets = append(w.sets, set...)
	s.to = int32(len(w.sets))
	s.need = w.needOf(set)
	w.states = append(w.states, s)
	w.next = append(w.next, make([]int32, w.classes)...)
	return id
}

// needOf is how many more bodies must be allowed for one of set to be possible.
func (w *walker) needOf(set []stack) int32 {
	need := int32(-1)
	for i := range set {
		n := set[i].up.need
		if set[i].up == w.unknown {
			n = set[i].most
			if w.nodes[set[i].node].flags&boundary == 0 {
				n++ // within a body
			}
		}
		if need < 0 || n < need {
			need = n
		}
	}
	return max(need, 0)
}

// keep makes the local of the walk that has ended.
func (w *walker) keep() {
	l := &w.locals[w.node]
	slices.SortFunc(w.exits, func(a, b exit) int {
		if a.b != b.b {
			return int(a.b) - int(b.b)
		}
		return int(a.at) - int(b.at)
	})
	l.exits = slices.Clone(w.exits)
	slices.SortFunc(w.late, func(a, b late) int {
		if a.need != b.need {
			return int(b.need) - int(a.need)
		}
		return int(a.token) - int(b.token)
	})
	if len(w.late) > 0 {
		l.need = w.late[0].need
	}
	if w.count*4 < len(w.bits)*8 {
		l.tokens = make([]kv.Token, 0, w.count)
		for i, word := range w.bits {
			l.tokens = appendBits(l.tokens, i, word)
		}
		l.late = slices.Clone(w.late)
	} else {
		l.bits = slices.Clone(w.bits)
		l.keepLate(w.late)
	}
	w.bytes += (len(l.bits)+len(l.upTo)*len(l.bits))*8 + len(l.tokens)*4 + len(l.exits)*12 + len(l.late)*8 + 128
}

// keepLate makes bitmaps for small needs if there are many tokens to leave out.
func (l *local) keepLate(late []late) {
	if len(late) > manyLate*len(l.bits) {
		bits := slices.Clone(l.bits)
		l.upTo = make([][]uint64, fewBodies)
		for n, i := int32(fewBodies), 0; n > 0; n-- {
			for ; i < len(late) && late[i].need > n; i++ {
				bits[late[i].token>>6] &^= 1 << (late[i].token & 63)
			}
			l.upTo[n-1] = slices.Clone(bits)
		}
		for i := range late {
			if late[i].need <= fewBodies {
				late = late[:i]
				break
			}
		}
	}
	l.late = slices.Clone(late)
}
