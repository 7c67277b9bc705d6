package grammar

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// local holds the part of a node's mask that does not depend on the stack below. It is found
// once, by walking the vocabulary's trie.
//
// In a counting unit the walk does not know the counts either. There a token has a need: it is
// allowed if at least as many further bodies may follow as its need says.
type local struct {
	bits   []uint64   // tokens that end within the unit or at its end; nil if they are few
	tokens []kv.Token // the same tokens as a list, if bits is nil
	exits  []exit     // where tokens continue past the unit's end, ascending by next byte
	late   []late     // tokens with a need over 1, or over fewBodies if upTo is set; descending
	upTo   [][]uint64 // [n-1]: bits of the tokens with a need of at most n; may be nil
	need   int32      // the largest need
}

// exit is a trie node whose byte follows the end of the unit. at is the node and b its byte.
// bodies is the number of bodies after which the unit ends (0 if the unit does not count).
type exit struct {
	at, bodies int32
	b          byte
}

// late is a token with its need.
type late struct {
	need  int32
	token kv.Token
}

const (
	fewBodies = 16 // needs from 1 to fewBodies have a bitmap each,
	manyLate  = 2  // if there are over manyLate late tokens per word of a mask
)

// walker walks the trie from each node of the machine in turn.
type walker struct {
	stepper
	setTable
	v       *Vocabulary
	limits  Limits
	outside *cell     // stands for the unknown stack below a unit that does not count
	follow  []byteSet // by unit: bytes that may follow it

	node   int32   // node of the machine whose walk is in progress
	at     int32   // next trie node; 0 before a walk
	path   []int32 // by depth: the state there
	bits   []uint64
	count  int
	late   []late
	exits  []exit
	locals []local
	bytes  int // of locals
}

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

// forget drops the numbered sets and the cells.
func (w *walker) forget() {
	w.pool.forget()
	w.setTable.forget()
}

// run does about *work units of work, lowers *work by the work done, and reports whether all
// nodes are walked. The error wraps ErrTooLarge.
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
			w.record()
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

// walk continues the walk through the trie until its end or until *work is used up, and lowers
// *work by the work done. The error wraps ErrTooLarge.
func (w *walker) walk(work *int) error {
	v, i := w.v, w.at
	defer func() { w.at = i }()
	for int(i) < len(v.label) {
		stop := min(int(i)+256, len(v.label))
		for int(i) < stop {
			label := v.label[i]
			depth := label >> 8
			slot := w.transition(w.path[depth-1], byte(label))
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

// allow adds tokens, which have the same need, to the node's local. A need of 0 or 1 is always
// met within the unit, where at least one body may follow, so only larger needs are recorded.
func (w *walker) allow(tokens []kv.Token, need int32) {
	for _, t := range tokens {
		w.bits[t>>6] |= 1 << (t & 63)
		if need > 1 {
			w.late = append(w.late, late{need, t})
		}
	}
	w.count += len(tokens)
}

// exitsBelow adds the exits at the children of trie node i. The unit may end after node i with
// each of the numbers of bodies in exits. A child is an exit if its byte may follow the unit.
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

// discover returns the state to which byte b leads from state, or dead, and caches it in
// w.next[slot].
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

// number returns the state of a set together with the exits of the last step; it adds the state
// if it is new.
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
	state, isNew := w.setTable.number(set, exits)
	if isNew {
		w.states[state].need = w.needOf(set)
	}
	return state
}

// needOf returns the need of a set of stacks: the least number of further bodies with which one
// of its stacks is possible.
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

// record stores the results of a finished walk as the node's local.
func (w *walker) record() {
	l := &w.locals[w.node]
	slices.SortFunc(w.exits, func(a, b exit) int { return cmp.Or(int(a.b)-int(b.b), int(a.at)-int(b.at)) })
	l.exits = slices.Clone(w.exits)
	slices.SortFunc(w.late, func(a, b late) int { return cmp.Or(int(b.need)-int(a.need), int(a.token)-int(b.token)) })
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
		l.recordLate(w.late)
	}
	w.bytes += (len(l.bits)+len(l.upTo)*len(l.bits))*8 + len(l.tokens)*4 + len(l.exits)*12 + len(l.late)*8 + 128
}

// recordLate stores the late tokens. If there are many, it makes a bitmap for each need up to
// fewBodies and lists only the tokens with larger needs.
func (l *local) recordLate(late []late) {
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
