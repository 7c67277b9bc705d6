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
	set      runeSet
	parts    []*term // termConcat, termAlternate: all; other kinds: only the first, if any
	min, max int     // termRepeat; max < 0 means any number
	lazy     bool
	op       op // termGroup
	back     bool
	several  bool // a group that contains repetitions or alternatives
}

type termKind uint8

const (
	termSet termKind = iota
	termConcat
	termAlternate
	termRepeat
	termGroup // opLook, opLookNot, opAtomic
)

// maxGroups bounds the nesting of groups.
const maxGroups = 32

// machineParser parses an expression.
type machineParser struct {
	expr    string
	at      int
	fold    bool   // (?i)
	cased   []rune // casedRunes, made if fold was ever set
	depth   int    // number of open groups
	several bool   // the innermost open group contains repetitions or alternatives
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
	m.classes = newRuneClasses(m.sets)
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
		set, err := p.escape()
		return p.runes(set), err
	case '.':
		p.at++
		return &term{set: notNewline}, nil
	case '^', '$':
		p.at++
		return &term{kind: termGroup, op: opLookNot, back: c == '^', parts: []*term{{set: notNewline}}}, nil
	case '*', '+', '?':
		return nil, fmt.Errorf("%q, which repeats nothing", c)
	}
	return p.runes(p.literal()), nil
}

var notNewline = runeSet{{'\n', '\n'}}.complement()

// runes returns the term that matches a rune of set, or with (?i) also its other cases.
func (p *machineParser) runes(set runeSet) *term {
	if p.fold {
		if p.cased == nil {
			p.cased = casedRunes()
		}
		set = set.folded(p.cased)
	}
	return &term{set: set}
}

// literal parses a rune that stands for itself.
func (p *machineParser) literal() runeSet {
	r, n := utf8.DecodeRuneInString(p.expr[p.at:])
	p.at += n
	return runeSet{{r, r}}
}

// escape parses a backslash and the text after it. It returns the runes that they mean.
func (p *machineParser) escape() (set runeSet, err error) {
	if p.at++; p.at >= len(p.expr) {
		return nil, errors.New("a backslash at its end")
	}
	set = p.literal()
	r := set[0].lo
	switch r {
	case 's', 'S':
		set = tableSet(unicode.White_Space)
	case 'd', 'D':
		set = tableSet(unicode.Nd)
	case 'p', 'P':
		set, err = p.property()
	case 'x':
		return p.hex(2)
	case 'u':
		return p.hex(4)
	default:
		if i := strings.IndexRune("nrtfv", r); i >= 0 {
			r = rune("\n\r\t\f\v"[i])
		} else if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return nil, fmt.Errorf(`the escape \%c`, r)
		}
		return runeSet{{r, r}}, nil
	}
	if unicode.IsUpper(r) {
		set = set.complement()
	}
	return set, err
}

func (p *machineParser) hex(digits int) (runeSet, error) {
	text := p.expr[p.at:min(p.at+digits, len(p.expr))]
	v, err := strconv.ParseUint(text, 16, 32)
	if err != nil || len(text) < digits {
		return nil, fmt.Errorf("%q in place of %d hexadecimal digits", text, digits)
	}
	p.at += digits
	return runeSet{{rune(v), rune(v)}}, nil
}

// property parses the name of a class after \p.
func (p *machineParser) property() (runeSet, error) {
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
			return tableSet(t), nil
		}
	}
	return nil, fmt.Errorf("the class %q", name)
}

// class parses [...]. Nested sets, && and [:names:], which Oniguruma has, are refused.
func (p *machineParser) class() (*term, error) {
	p.at++
	not := p.skip("^")
	var ranges []runeRange
	for first := true; ; first = false {
		if p.at >= len(p.expr) {
			return nil, errors.New("a set without an end")
		}
		if !first && p.skip("]") {
			break
		}
		set, err := p.member()
		if err != nil {
			return nil, err
		}
		if rest := p.expr[p.at:]; single(set) && len(rest) > 1 && rest[0] == '-' && rest[1] != ']' {
			p.at++
			end, err := p.member()
			if err != nil {
				return nil, err
			}
			if !single(end) || end[0].hi < set[0].lo {
				return nil, fmt.Errorf("a range of a set that has no end")
			}
			set[0].hi = end[0].hi
		}
		ranges = append(ranges, set...)
	}
	t := p.runes(newRuneSet(ranges))
	if not {
		t.set = t.set.complement()
	}
	return t, nil
}

func single(set runeSet) bool { return len(set) == 1 && set[0].lo == set[0].hi }

func (p *machineParser) member() (runeSet, error) {
	switch {
	case p.expr[p.at] == '\\':
		return p.escape()
	case p.expr[p.at] == '[':
		return nil, errors.New("a set in a set")
	case strings.HasPrefix(p.expr[p.at:], "&&"):
		return nil, errors.New("an intersection of sets")
	}
	return p.literal(), nil
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
