package tokenizer

import (
	"unicode/utf8"

	"github.com/coppice-llm/coppice/internal/runeset"
)

// machine is a compiled regular expression: a program for a backtracking matcher. The matcher
// counts its steps and stops after an allowance, so that no expression of a file can block the
// process. It stops at the same point on every computer.
type machine struct {
	code    []instr
	sets    []runeset.Set // distinct
	classes *runeClasses
}

// instr is one instruction. In a look-behind, instructions that read a rune read the one before
// the position, and step back.
type instr struct {
	op   op
	back bool
	x, y int32 // targets, as indexes into code; with a set, x is its index in sets
}

type op uint8

const (
	opSet     op = iota // a rune of set x
	opRun               // runes of set x, greedy
	opLazyRun           // runes of set x, lazy
	opSplit             // try x, and if that fails y
	opJump              // x
	opLook              // the code after this instruction matches here; continue at x
	opLookNot           // the code after this instruction does not match here; continue at x
	opAtomic            // the first match of the code after this instruction; continue after it at x
	opEnd               // a match
)

// has reports whether r is in set x.
func (m *machine) has(x int32, r rune) bool { return m.classes.in[m.classes.of(r)][x] == 1 }

// matcherState is a machine that runs on a text.
type matcherState struct {
	m     *machine
	text  string
	steps int // steps left
	stack []alternative
}

// alternative is a state to which the matcher can backtrack: instruction pc at text[at]. The
// alternative of a greedy run stands for all shorter runs, down to the one that ends at lo; that
// of a lazy run stands for all longer runs.
type alternative struct {
	pc, set int32 // set: index of a lazy run's set, else -1
	at, lo  int
	back    bool
}

// Allowance returns the number of steps that regular expressions may take on n bytes of text. The
// expressions in use need under 40 steps per byte, far fewer.
func Allowance(n int) int { return min(1<<20+256*n, max(1<<28, 32*n)) }

// find returns the first match in text[from:], which is text[lo:hi]; ok is false if there is
// none, or if no steps are left.
func (s *matcherState) find(from int) (lo, hi int, ok bool) {
	for lo = from; lo <= len(s.text) && s.steps > 0; {
		if hi, ok = s.run(0, lo); ok {
			return lo, hi, true
		}
		_, n := utf8.DecodeRuneInString(s.text[lo:])
		lo += max(n, 1)
	}
	return 0, 0, false
}

// run executes the code from instruction pc at text[at] up to its opEnd and returns the end of
// the match. ok is false if nothing matches or no steps are left.
func (s *matcherState) run(pc int32, at int) (end int, ok bool) {
	base := len(s.stack)
	defer func() { s.stack = s.stack[:base] }()
	for {
		if s.steps--; s.steps < 0 {
			return 0, false
		}
		i := &s.m.code[pc]
		matched := true
		switch i.op {
		case opEnd:
			return at, true
		case opSet:
			r, n := s.read(at, i.back)
			if matched = n > 0 && s.m.has(i.x, r); matched {
				at, pc = s.move(at, n, i.back), pc+1
			}
		case opRun:
			at = s.greedy(i, pc+1, at)
			pc++
		case opLazyRun:
			s.stack = append(s.stack, alternative{pc: pc + 1, set: i.x, at: at, back: i.back})
			pc++
		case opSplit:
			s.stack = append(s.stack, alternative{pc: i.y, set: -1, at: at, lo: at})
			pc = i.x
		case opJump:
			pc = i.x
		default:
			end, ok := s.run(pc+1, at)
			if matched = ok == (i.op != opLookNot) && s.steps > 0; matched && i.op == opAtomic {
				at = end
			}
			pc = i.x
		}
		if !matched {
			if pc, at, ok = s.retreat(base); !ok {
				return 0, false
			}
		}
	}
}

// read returns the rune that begins at text[at], or with back the rune that ends there, and its
// length n in bytes. n is 0 if there is none.
func (s *matcherState) read(at int, back bool) (r rune, n int) {
	if back {
		r, n = utf8.DecodeLastRuneInString(s.text[:at])
	} else {
		r, n = utf8.DecodeRuneInString(s.text[at:])
	}
	return r, n
}

func (s *matcherState) move(at, n int, back bool) int {
	if back {
		return at - n
	}
	return at + n
}

// greedy returns the end of the longest run of runes of instruction i's set from text[at]. If the
// run is not empty, it adds an alternative for the shorter runs, after which the matcher
// continues at instruction next.
func (s *matcherState) greedy(i *instr, next int32, at int) int {
	from := at
	for s.steps > 0 {
		r, n := s.read(at, i.back)
		if n == 0 || !s.m.has(i.x, r) {
			break
		}
		at = s.move(at, n, i.back)
		s.steps--
	}
	if at != from {
		s.stack = append(s.stack, alternative{pc: next, set: -1, at: at, lo: from, back: i.back})
	}
	return at
}

// retreat backtracks: it returns the state of the latest alternative in s.stack[base:]. ok is
// false if there is none.
func (s *matcherState) retreat(base int) (pc int32, at int, ok bool) {
	for len(s.stack) > base {
		a := &s.stack[len(s.stack)-1]
		switch {
		case a.set >= 0: // one rune more
			r, n := s.read(a.at, a.back)
			if n == 0 || !s.m.has(a.set, r) {
				s.stack = s.stack[:len(s.stack)-1]
				continue
			}
			a.at = s.move(a.at, n, a.back)
			return a.pc, a.at, true
		case a.at != a.lo: // one rune fewer
			_, n := s.read(a.at, !a.back)
			a.at = s.move(a.at, n, !a.back)
			pc, at = a.pc, a.at
			if a.at == a.lo {
				s.stack = s.stack[:len(s.stack)-1]
			}
			return pc, at, true
		}
		pc, at = a.pc, a.at
		s.stack = s.stack[:len(s.stack)-1]
		return pc, at, true
	}
	return 0, 0, false
}
