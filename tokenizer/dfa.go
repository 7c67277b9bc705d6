package tokenizer

import (
	"encoding/binary"
	"unicode/utf8"
)

// dfa is a machine as a deterministic automaton, which finds the same matches and looks at each
// rune once for each place where it begins. It is made for expressions that look no further than
// at the rune after a match, which is all that the expressions of most model families need.
type dfa struct {
	classes *runeClasses
	ascii   [utf8.RuneSelf]uint16
	width   int      // classes, and one more for the end of the text
	next    []uint32 // [state*width+class]: the next state*width*2, plus 1 if a match ends before the rune
}

// State 0 matches nothing; the automaton begins in state 1.
const dead, start = 0, 1

const (
	maxDFACode  = 512     // instructions of a machine that is made a dfa
	maxDFATable = 1 << 14 // entries of its table
)

// newDFA returns nil if m has no dfa: if it looks around other than at the following rune, if it
// may match "", or if the automaton would be too large.
func newDFA(m *machine) *dfa {
	d := &dfa{classes: m.classes, width: len(m.classes.in) + 1}
	f := follower{m: m, seen: make([]bool, len(m.code))}
	for pc, i := range m.code {
		if (i.op == opLook || i.op == opLookNot) && m.code[pc+1].op == opSet && !m.code[pc+1].back && m.code[pc+2].op == opEnd {
			continue
		}
		if i.op >= opLook && i.op != opEnd {
			return nil
		}
	}
	known := map[string]uint32{"": dead, string(stateKey([]int32{0})): start}
	states := [][]int32{nil, {0}}
	for at := 0; at < len(states); at++ {
		if len(states)*d.width > maxDFATable || len(m.code) > maxDFACode {
			return nil
		}
		for class := range d.width {
			to, ends := f.follow(states[at], class)
			if ends > 0 && at == start {
				return nil
			}
			key := string(stateKey(to))
			n, ok := known[key]
			if !ok {
				n = uint32(len(states))
				known[key] = n
				states = append(states, to)
			}
			d.next = append(d.next, n*uint32(d.width)<<1|ends)
		}
	}
	for b := range d.ascii {
		d.ascii[b] = d.classes.of(rune(b))
	}
	return d
}

func stateKey(state []int32) (key []byte) {
	for _, pc := range state {
		key = binary.LittleEndian.AppendUint32(key, uint32(pc))
	}
	return key
}

// follower computes the states of a dfa. A state is the instructions that the matcher may be at,
// in the order in which it would try them.
type follower struct {
	m     *machine
	class int
	seen  []bool // instructions visited
	to    []int32
}

// follow returns the state after one more rune of class, which may be the end of the text. ends is
// 1 if a match ends before that rune.
func (f *follower) follow(state []int32, class int) (to []int32, ends uint32) {
	clear(f.seen)
	f.class, f.to = class, nil
	for _, pc := range state {
		if f.visit(pc) {
			return f.to, 1
		}
	}
	return f.to, 0
}

// visit follows instruction pc and reports whether it leads to the end of a match. Instructions
// that the matcher would try after that one then do not count.
func (f *follower) visit(pc int32) (ends bool) {
	if f.seen[pc] {
		return false
	}
	f.seen[pc] = true
	i := &f.m.code[pc]
	switch i.op {
	case opSet:
		f.add(i.x, pc+1)
	case opRun:
		f.add(i.x, pc)
		return f.visit(pc + 1)
	case opLazyRun:
		ends = f.visit(pc + 1)
		if !ends {
			f.add(i.x, pc)
		}
		return ends
	case opSplit:
		return f.visit(i.x) || f.visit(i.y)
	case opJump:
		return f.visit(i.x)
	case opLook, opLookNot:
		return f.has(f.m.code[pc+1].x) == (i.op == opLook) && f.visit(i.x)
	}
	return i.op == opEnd
}

// has reports whether the rune is in set x. The end of the text is in none.
func (f *follower) has(x int32) bool {
	return f.class < len(f.m.classes.in) && f.m.classes.in[f.class][x] == 1
}

// add adds pc to the next state if the rune is in set x.
func (f *follower) add(x, pc int32) {
	if f.has(x) {
		f.to = append(f.to, pc)
	}
}

// find returns the first match in text[from:], which is text[lo:hi]; ok is false if there is
// none. It lowers *steps by the runes that it looks at, and finds nothing when *steps is 0.
func (d *dfa) find(text string, from int, steps *int) (lo, hi int, ok bool) {
	for lo = from; lo < len(text) && *steps > 0; {
		at := lo
		for row := start * d.width; ; {
			class, n := d.width-1, 1
			if at < len(text) {
				if b := text[at]; b < utf8.RuneSelf {
					class = int(d.ascii[b])
				} else {
					class, n = d.wide(text[at:])
				}
			}
			next := d.next[row+class]
			if next&1 != 0 {
				hi = at
			}
			from := row
			if row = int(next >> 1); row == dead {
				break
			}
			if at += n; row == from {
				if end := d.run(text, at, row, next); end > at {
					if at = end; next&1 != 0 {
						hi = at - 1
					}
				}
			}
		}
		*steps -= at - lo + 1
		if hi > lo {
			return lo, hi, true
		}
		_, n := utf8.DecodeRuneInString(text[lo:])
		lo += n
	}
	return 0, 0, false
}

// run returns the end of the ASCII text from at on that keeps the automaton in row with the same
// entry. A processor guesses that a run goes on, so it need not wait for one entry to read the
// next.
func (d *dfa) run(text string, at, row int, entry uint32) int {
	for next := d.next[row:][:d.width]; at < len(text); at++ {
		if b := text[at]; b >= utf8.RuneSelf || next[d.ascii[b]] != entry {
			break
		}
	}
	return at
}

// wide returns the class and the length of the rune that text begins with.
func (d *dfa) wide(text string) (class, n int) {
	r, n := utf8.DecodeRuneInString(text)
	return int(d.classes.of(r)), n
}
