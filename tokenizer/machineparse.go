package tokenizer

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxCode bounds the instructions of a machine; the expressions in use have under 100.
const maxCode = 8192

// term is a node of an expression's syntax tree.
type term struct {
	kind     termKind
	r        rune
	set      runeSet
	parts    []*term // termConcat, termAlternate: all; other kinds: only the first, if any
	min, max int     // termRepeat; max < 0 means any number
	lazy     bool
	op       op // termAssert, termGroup
	back     bool
}

type termKind uint8

const (
	termRune termKind = iota
	termSet
	termConcat
	termAlternate
	termRepeat
	termAssert // opLineHead, opLineTail
	termGroup  // opLook, opLookNot, opAtomic
)

// machineParser parses an expression that checkPattern has accepted.
type machineParser struct {
	expr string
	at   int
	fold bool // (?i)
}

// newMachine compiles an expression.
func newMachine(expr string) (*machine, error) {
	p := machineParser{expr: expr}
	t, err := p.alternate()
	if err == nil && p.at < len(expr) {
		err = fmt.Errorf("%q at byte %d", expr[p.at], p.at)
	}
	if err != nil {
		return nil, err
	}
	m := &machine{}
	if err := m.compile(t, false); err != nil {
		return nil, err
	}
	m.emit(instr{op: opEnd})
	return m, nil
}

// alternate parses alternatives up to the end of the group.
func (p *machineParser) alternate() (*term, error) {
	fold := p.fold // (?i) ends with its group
	defer func() { p.fold = fold }()
	all := &term{kind: termAlternate}
	for {
		t, err := p.concat()
		if err != nil {
			return nil, err
		}
		all.parts = append(all.parts, t)
		if !p.skip("|") {
			return all, nil
		}
	}
}

func (p *machineParser) concat() (*term, error) {
	all := &term{kind: termConcat}
	for p.at < len(p.expr) && p.expr[p.at] != '|' && p.expr[p.at] != ')' {
		if p.skip("(?i)") {
			p.fold = true
			continue
		}
		t, err := p.element()
		if err != nil {
			return nil, err
		}
		if t, err = p.repeated(t); err != nil {
			return nil, err
		}
		all.parts = append(all.parts, t)
	}
	return all, nil
}

func (p *machineParser) skip(text string) bool {
	if !strings.HasPrefix(p.expr[p.at:], text) {
		return false
	}
	p.at += len(text)
	return true
}

// groups maps the beginning of each kind of group to its instruction.
var groups = []struct {
	begins string
	op     op // opEnd: a plain group
	back   bool
}{
	{"(?:", opEnd, false}, {"(?=", opLook, false}, {"(?!", opLookNot, false}, {"(?<=", opLook, true}, {"(?<!", opLookNot, true}, {"(?>", opAtomic, false},
	{"(?i:", opEnd, false}, {"(", opEnd, false},
}

func (p *machineParser) element() (*term, error) {
	for _, g := range groups {
		if !p.skip(g.begins) {
			continue
		}
		fold := p.fold
		p.fold = fold || g.begins == "(?i:"
		t, err := p.alternate()
		p.fold = fold
		switch {
		case err != nil:
			return nil, err
		case !p.skip(")"):
			return nil, fmt.Errorf("a group without an end")
		case g.op != opEnd:
			t = &term{kind: termGroup, op: g.op, back: g.back, parts: []*term{t}}
		}
		return t, nil
	}
	switch c := p.expr[p.at]; c {
	case '[':
		return p.class()
	case '\\':
		var set runeSet
		r, isSet, err := p.escape(&set)
		if err != nil || isSet {
			return p.sealed(set), err
		}
		return p.letter(r), nil
	case '.':
		p.at++
		return p.sealed(runeSet{ranges: []runeRange{{'\n', '\n'}}, not: true}), nil
	case '^', '$':
		p.at++
		return &term{kind: termAssert, op: map[byte]op{'^': opLineHead, '$': opLineTail}[c]}, nil
	case '*', '+', '?':
		return nil, fmt.Errorf("%q, which repeats nothing", c)
	}
	r, n := utf8.DecodeRuneInString(p.expr[p.at:])
	p.at += n
	return p.letter(r), nil
}

// letter returns the set of one rune, or with (?i) also of its other cases.
func (p *machineParser) letter(r rune) *term {
	if p.fold && unicode.SimpleFold(r) != r {
		return p.sealed(runeSet{ranges: []runeRange{{r, r}}})
	}
	return &term{kind: termRune, r: r}
}

func (p *machineParser) sealed(set runeSet) *term {
	set.fold = p.fold
	set.seal()
	return &term{kind: termSet, set: set}
}

// escape parses the text after a backslash: a rune, or a class that is added to set.
func (p *machineParser) escape(set *runeSet) (r rune, isSet bool, err error) {
	p.at++
	if p.at >= len(p.expr) {
		return 0, false, fmt.Errorf("a backslash at its end")
	}
	r, n := utf8.DecodeRuneInString(p.expr[p.at:])
	p.at += n
	switch r {
	case 's', 'S':
		set.tables = append(set.tables, classTable{nil, r == 'S'})
		return 0, true, nil
	case 'd', 'D':
		set.tables = append(set.tables, classTable{unicode.Nd, r == 'D'})
		return 0, true, nil
	case 'p', 'P':
		table, err := p.property()
		set.tables = append(set.tables, classTable{table, r == 'P'})
		return 0, true, err
	case 'x':
		r, err = p.hex(2)
	case 'u':
		r, err = p.hex(4)
	default:
		if i := strings.IndexRune("nrtfv", r); i >= 0 {
			r = rune("\n\r\t\f\v"[i])
		}
	}
	return r, false, err
}

func (p *machineParser) hex(digits int) (rune, error) {
	text := p.expr[p.at:min(p.at+digits, len(p.expr))]
	v, err := strconv.ParseUint(text, 16, 32)
	if err != nil || len(text) < digits {
		return 0, fmt.Errorf("%q in place of %d hexadecimal digits", text, digits)
	}
	p.at += digits
	return rune(v), nil
}

// property parses the name of a class after \p.
func (p *machineParser) property() (*unicode.RangeTable, error) {
	rest := p.expr[p.at:]
	name := rest[:min(1, len(rest))]
	p.at += len(name)
	if name == "{" {
		end := strings.IndexByte(rest, '}')
		if end < 0 {
			return nil, fmt.Errorf(`\p{ without an end`)
		}
		name = rest[1:end]
		p.at += end
	}
	for _, tables := range []map[string]*unicode.RangeTable{unicode.Categories, unicode.Scripts, unicode.Properties} {
		if t := tables[name]; t != nil {
			return t, nil
		}
	}
	return nil, fmt.Errorf("the class %q", name)
}

// class parses [...].
func (p *machineParser) class() (*term, error) {
	p.at++
	set := runeSet{not: p.skip("^")}
	for first := true; ; first = false {
		if p.at >= len(p.expr) {
			return nil, fmt.Errorf("a set without an end")
		}
		if !first && p.skip("]") {
			return p.sealed(set), nil
		}
		lo, isSet, err := p.member(&set)
		if err != nil {
			return nil, err
		}
		if isSet {
			continue
		}
		hi := lo
		if rest := p.expr[p.at:]; len(rest) > 1 && rest[0] == '-' && rest[1] != ']' {
			p.at++
			if hi, isSet, err = p.member(&set); err != nil {
				return nil, err
			}
			if isSet || hi < lo {
				return nil, fmt.Errorf("a range of a set that has no end")
			}
		}
		set.ranges = append(set.ranges, runeRange{lo, hi})
	}
}

func (p *machineParser) member(set *runeSet) (r rune, isSet bool, err error) {
	if p.expr[p.at] == '\\' {
		return p.escape(set)
	}
	r, n := utf8.DecodeRuneInString(p.expr[p.at:])
	p.at += n
	return r, false, nil
}

// repeated parses a quantifier after t, if there is one.
func (p *machineParser) repeated(t *term) (*term, error) {
	if p.at >= len(p.expr) || strings.IndexByte("?*+{", p.expr[p.at]) < 0 {
		return t, nil
	}
	out := &term{kind: termRepeat, parts: []*term{t}, max: -1}
	switch p.at++; p.expr[p.at-1] {
	case '?':
		out.max = 1
	case '+':
		out.min = 1
	case '{':
		body := p.expr[p.at : p.at+strings.IndexByte(p.expr[p.at:], '}')] // checkPattern has checked that there is a brace
		p.at += len(body) + 1
		lo, hi, both := strings.Cut(body, ",")
		var errLo, errHi error
		if lo != "" {
			out.min, errLo = strconv.Atoi(lo)
		}
		if hi != "" {
			out.max, errHi = strconv.Atoi(hi)
		}
		if !both {
			out.max = out.min
		}
		if errLo != nil || errHi != nil || lo+hi == "" || out.max >= 0 && out.max < out.min {
			return nil, fmt.Errorf("the repetition {%s}", body)
		}
	}
	out.lazy = p.skip("?")
	return out, nil
}
