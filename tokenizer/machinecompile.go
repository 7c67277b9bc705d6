package tokenizer

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/internal/bail"
	"github.com/coppice-llm/coppice/internal/runeset"
)

// emit appends i to the code and returns its index.
func (m *machine) emit(i instr) int32 {
	m.code = append(m.code, i)
	return int32(len(m.code)) - 1
}

// compile emits code that matches t. With back, as in a look-behind, the code reads the text
// backwards. It bails out if the code has more than maxCode instructions.
func (m *machine) compile(t *term, back bool) {
	if len(m.code) > maxCode {
		bail.Out(fmt.Errorf("more than %d instructions", maxCode))
	}
	switch t.kind {
	case termSet:
		m.emit(instr{op: opSet, x: m.set(t.set), back: back})
	case termConcat:
		parts := t.parts
		if back {
			parts = slices.Clone(parts)
			slices.Reverse(parts)
		}
		for _, part := range parts {
			m.compile(part, back)
		}
	case termAlternate:
		m.alternatives(t.parts, back)
	case termGroup:
		at := m.emit(instr{op: t.op})
		m.compile(t.parts[0], t.back || t.op == opAtomic && back)
		m.emit(instr{op: opEnd})
		m.code[at].x = int32(len(m.code))
	case termRepeat:
		m.repeat(t, back)
	}
}

// set returns the index of s in m.sets.
func (m *machine) set(s runeset.Set) int32 {
	x := slices.IndexFunc(m.sets, func(t runeset.Set) bool { return slices.Equal(s, t) })
	if x < 0 {
		x = len(m.sets)
		m.sets = append(m.sets, s)
	}
	return int32(x)
}

func (m *machine) alternatives(parts []*term, back bool) {
	var ends []int32
	for i, part := range parts {
		split := int32(-1)
		if i < len(parts)-1 {
			split = m.emit(instr{op: opSplit})
			m.code[split].x = split + 1
		}
		m.compile(part, back)
		if split >= 0 {
			ends = append(ends, m.emit(instr{op: opJump}))
			m.code[split].y = int32(len(m.code))
		}
	}
	for _, at := range ends {
		m.code[at].x = int32(len(m.code))
	}
}

// repeat emits t.min copies of the repeated term. After these it emits a loop if t has no
// maximum, or else the remaining copies, each of them optional.
func (m *machine) repeat(t *term, back bool) {
	body, most := t.parts[0], t.max
	if most < 0 && body.nullable() { // repeating an empty match has no effect
		most = max(t.min, 1)
	}
	for range t.min {
		m.compile(body, back)
	}
	if most < 0 {
		m.loop(body, t.lazy, back)
		return
	}
	var splits []int32
	for range most - t.min {
		splits = append(splits, m.emit(instr{op: opSplit}))
		m.compile(body, back)
	}
	for _, at := range splits {
		m.code[at].x, m.code[at].y = m.ways(at+1, int32(len(m.code)), t.lazy)
	}
}

// loop emits any number of matches of body, which must match at least one rune. lazy prefers
// fewer matches.
func (m *machine) loop(body *term, lazy, back bool) {
	for body.kind == termAlternate && len(body.parts) == 1 || body.kind == termConcat && len(body.parts) == 1 {
		body = body.parts[0]
	}
	if body.kind == termSet {
		run := opRun
		if lazy {
			run = opLazyRun
		}
		m.emit(instr{op: run, x: m.set(body.set), back: back})
		return
	}
	split := m.emit(instr{op: opSplit})
	m.compile(body, back)
	m.emit(instr{op: opJump, x: split})
	m.code[split].x, m.code[split].y = m.ways(split+1, int32(len(m.code)), lazy)
}

// ways returns the targets x and y of a split that either enters a body or leaves it for out. The
// matcher tries x first: body, or out if lazy is set.
func (m *machine) ways(body, out int32, lazy bool) (x, y int32) {
	if lazy {
		return out, body
	}
	return body, out
}

// nullable reports whether t may match the empty string.
func (t *term) nullable() bool {
	switch t.kind {
	case termSet:
		return false
	case termConcat:
		return !slices.ContainsFunc(t.parts, func(p *term) bool { return !p.nullable() })
	case termAlternate:
		return slices.ContainsFunc(t.parts, (*term).nullable)
	case termRepeat:
		return t.min == 0 || t.parts[0].nullable()
	case termGroup:
		return t.op != opAtomic || t.parts[0].nullable()
	}
	return true
}
