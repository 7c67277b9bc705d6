package tokenizer

import (
	"errors"
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
	several  bool // a group that contains repetitions or alternatives
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

// maxGroups bounds the nesting of groups.
const maxGroups = 32

// machineParser parses an expression.
type machineParser struct {
	expr    string
	at      int
	fold    bool // (?i)
	depth   int  // number of open groups
	several bool // the innermost open group contains repetitions or alternatives
}

// newMachine compiles an expression.
func newMachine(expr string) (*machine, error) {
	p := machineParser{expr: expr}
	t, err := p.alternate()
	if err == nil && p.at < len(expr) {
		err = errors.New("a parenthesis that nothing opens")
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
		p.several = true
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

func (p *machineParser) group() (*term, error) {
	for _, g := range groups {
		rest := p.expr[p.at:]
		if !p.skip(g.begins) {
			continue
		}
		switch {
		case p.depth == maxGroups:
			return nil, errors.New("groups nested too deep")
		case g.begins == "(" && p.skip("?"):
			return nil, fmt.Errorf("the group %.4s", rest)
		}
		fold, several := p.fold, p.several
		p.fold, p.several = fold || g.begins == "(?i:", false
		p.depth++
		t, err := p.alternate()
		p.depth--
		switch {
		case err != nil:
			return nil, err
		case !p.skip(")"):
			return nil, errors.New("a group without an end")
		case g.op != opEnd:
			t = &term{kind: termGroup, op: g.op, back: g.back, parts: []*term{t}}
		}
		t.several = p.several
		p.fold, p.several = fold, several
		return t, nil
	}
	panic("tokenizer: no group begins at " + p.expr[p.at:])
}

func (p *machineParser) element() (*term, error) {
	switch c := p.expr[p.at]; c {
	case '(':
		return p.group()
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

// letter returns the term that matches r, or with (?i) also its other cases.
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

// escape parses a backslash and the text after it. It returns the rune that they mean; or it adds
// a class such as \d to set, and isSet is true.
func (p *machineParser) escape(set *runeSet) (r rune, isSet bool, err error) {
	p.at++
	if p.at >= len(p.expr) {
		return 0, false, errors.New("a backslash at its end")
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
		} else if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return 0, false, fmt.Errorf(`the escape \%c`, r)
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

// class parses [...]. Nested sets, && and [:names:], which Oniguruma has, are refused.
func (p *machineParser) class() (*term, error) {
	p.at++
	set := runeSet{not: p.skip("^")}
	for first := true; ; first = false {
		if p.at >= len(p.expr) {
			return nil, errors.New("a set without an end")
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
	switch {
	case p.expr[p.at] == '\\':
		return p.escape(set)
	case p.expr[p.at] == '[':
		return 0, false, errors.New("a set in a set")
	case strings.HasPrefix(p.expr[p.at:], "&&"):
		return 0, false, errors.New("an intersection of sets")
	}
	r, n := utf8.DecodeRuneInString(p.expr[p.at:])
	p.at += n
	return r, false, nil
}

// repeated parses the quantifier that follows t and returns the repetition of t; without a
// quantifier it returns t.
func (p *machineParser) repeated(t *term) (*term, error) {
	if !p.atQuantifier() {
		p.several = p.several || t.several
		return t, nil
	}
	if t.several && p.expr[p.at] != '?' {
		return nil, errors.New("a repetition of a group that holds repetitions or alternatives")
	}
	p.several = true
	out := &term{kind: termRepeat, parts: []*term{t}, max: -1}
	switch p.at++; p.expr[p.at-1] {
	case '?':
		out.max = 1
	case '+':
		out.min = 1
	case '{':
		body, _, ok := strings.Cut(p.expr[p.at:], "}")
		if !ok {
			return nil, errors.New("a brace without an end")
		}
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
		if strings.Trim(body, "0123456789,") != "" || len(body) > 5 || errLo != nil || errHi != nil || lo+hi == "" || out.max >= 0 && out.max < out.min {
			return nil, fmt.Errorf("the repetition {%s}", body)
		}
	}
	if out.lazy = p.skip("?"); p.atQuantifier() {
		return nil, errors.New("a repetition of a repetition or a possessive one")
	}
	return out, nil
}

func (p *machineParser) atQuantifier() bool {
	return p.at < len(p.expr) && strings.IndexByte("?*+{", p.expr[p.at]) >= 0
}
