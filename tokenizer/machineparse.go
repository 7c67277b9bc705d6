package tokenizer

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/internal/bail"
	"github.com/coppice-llm/coppice/internal/runeset"
)

// maxCode bounds the instructions of a machine; the expressions in use have under 100.
const maxCode = 8192

// term is a node of an expression's syntax tree.
type term struct {
	kind     termKind
	set      runeset.Set
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
func newMachine(expr string) (_ *machine, err error) {
	defer bail.Recover(&err)
	p := machineParser{expr: expr}
	t := p.alternate()
	if p.at < len(expr) {
		fault("a parenthesis that nothing opens")
	}
	m := &machine{}
	m.compile(t, false)
	m.emit(instr{op: opEnd})
	m.classes = newRuneClasses(m.sets)
	return m, nil
}

// fault ends the parsing of an expression with the name of what is not supported.
func fault(format string, args ...any) { bail.Out(fmt.Errorf(format, args...)) }

// alternate parses alternatives up to the end of the group.
func (p *machineParser) alternate() *term {
	fold := p.fold // (?i) ends with its group
	defer func() { p.fold = fold }()
	all := &term{kind: termAlternate}
	for {
		all.parts = append(all.parts, p.concat())
		if !p.skip("|") {
			return all
		}
		p.several = true
	}
}

func (p *machineParser) concat() *term {
	all := &term{kind: termConcat}
	for p.at < len(p.expr) && p.expr[p.at] != '|' && p.expr[p.at] != ')' {
		if p.skip("(?i)") {
			p.fold = true
			continue
		}
		all.parts = append(all.parts, p.repeated(p.element()))
	}
	return all
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

func (p *machineParser) group() *term {
	for _, g := range groups {
		rest := p.expr[p.at:]
		if !p.skip(g.begins) {
			continue
		}
		switch {
		case p.depth == maxGroups:
			fault("groups nested too deep")
		case g.begins == "(" && p.skip("?"):
			fault("the group %.4s", rest)
		}
		fold, several := p.fold, p.several
		p.fold, p.several = fold || g.begins == "(?i:", false
		p.depth++
		t := p.alternate()
		p.depth--
		if !p.skip(")") {
			fault("a group without an end")
		}
		if g.op != opEnd {
			t = &term{kind: termGroup, op: g.op, back: g.back, parts: []*term{t}}
		}
		t.several = p.several
		p.fold, p.several = fold, several
		return t
	}
	panic("tokenizer: no group begins at " + p.expr[p.at:])
}

func (p *machineParser) element() *term {
	switch c := p.expr[p.at]; c {
	case '(':
		return p.group()
	case '[':
		return p.class()
	case '\\':
		return p.runes(p.escape())
	case '.':
		p.at++
		return &term{set: notNewline}
	case '^', '$':
		p.at++
		return &term{kind: termGroup, op: opLookNot, back: c == '^', parts: []*term{{set: notNewline}}}
	case '*', '+', '?':
		fault("%q, which repeats nothing", c)
	}
	return p.runes(p.literal())
}

var notNewline = runeset.One('\n').Complement()

// runes returns the term that matches a rune of set, or with (?i) also its other cases.
func (p *machineParser) runes(set runeset.Set) *term {
	if p.fold {
		if p.cased == nil {
			p.cased = casedRunes()
		}
		set = folded(set, p.cased)
	}
	return &term{set: set}
}

// literal parses a rune that stands for itself.
func (p *machineParser) literal() runeset.Set {
	r, n := utf8.DecodeRuneInString(p.expr[p.at:])
	p.at += n
	return runeset.One(r)
}

// escape parses a backslash and the text after it. It returns the runes that they mean.
func (p *machineParser) escape() runeset.Set {
	if p.at++; p.at >= len(p.expr) {
		fault("a backslash at its end")
	}
	set := p.literal()
	r := set[0].Lo
	switch r {
	case 's', 'S':
		set = runeset.Table(unicode.White_Space)
	case 'd', 'D':
		set = runeset.Table(unicode.Nd)
	case 'p', 'P':
		set = p.property()
	case 'x':
		return p.hex(2)
	case 'u':
		return p.hex(4)
	default:
		if i := strings.IndexRune("nrtfv", r); i >= 0 {
			r = rune("\n\r\t\f\v"[i])
		} else if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			fault(`the escape \%c`, r)
		}
		return runeset.One(r)
	}
	if unicode.IsUpper(r) {
		return set.Complement()
	}
	return set
}

func (p *machineParser) hex(digits int) runeset.Set {
	text := p.expr[p.at:min(p.at+digits, len(p.expr))]
	v, err := strconv.ParseUint(text, 16, 32)
	if err != nil || len(text) < digits {
		fault("%q in place of %d hexadecimal digits", text, digits)
	}
	p.at += digits
	return runeset.One(rune(v))
}

// property parses the name of a class after \p.
func (p *machineParser) property() runeset.Set {
	rest := p.expr[p.at:]
	name := rest[:min(1, len(rest))]
	p.at += len(name)
	if name == "{" {
		end := strings.IndexByte(rest, '}')
		if end < 0 {
			fault(`\p{ without an end`)
		}
		name = rest[1:end]
		p.at += end
	}
	table := cmp.Or(unicode.Categories[name], unicode.Scripts[name], unicode.Properties[name])
	if table == nil {
		fault("the class %q", name)
	}
	return runeset.Table(table)
}

// class parses [...]. Nested sets, && and [:names:], which Oniguruma has, are refused.
func (p *machineParser) class() *term {
	p.at++
	not := p.skip("^")
	var ranges []runeset.Range
	for first := true; ; first = false {
		if p.at >= len(p.expr) {
			fault("a set without an end")
		}
		if !first && p.skip("]") {
			break
		}
		set := p.member()
		if rest := p.expr[p.at:]; set.IsOne() && len(rest) > 1 && rest[0] == '-' && rest[1] != ']' {
			p.at++
			end := p.member()
			if !end.IsOne() || end[0].Hi < set[0].Lo {
				fault("a range of a set that has no end")
			}
			set[0].Hi = end[0].Hi
		}
		ranges = append(ranges, set...)
	}
	t := p.runes(runeset.New(ranges))
	if not {
		t.set = t.set.Complement()
	}
	return t
}

func (p *machineParser) member() runeset.Set {
	switch {
	case p.expr[p.at] == '\\':
		return p.escape()
	case p.expr[p.at] == '[':
		fault("a set in a set")
	case strings.HasPrefix(p.expr[p.at:], "&&"):
		fault("an intersection of sets")
	}
	return p.literal()
}

// repeated parses the quantifier that follows t and returns the repetition of t; without a
// quantifier it returns t.
func (p *machineParser) repeated(t *term) *term {
	if !p.atQuantifier() {
		p.several = p.several || t.several
		return t
	}
	if t.several && p.expr[p.at] != '?' {
		fault("a repetition of a group that holds repetitions or alternatives")
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
			fault("a brace without an end")
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
			fault("the repetition {%s}", body)
		}
	}
	if out.lazy = p.skip("?"); p.atQuantifier() {
		fault("a repetition of a repetition or a possessive one")
	}
	return out
}

func (p *machineParser) atQuantifier() bool {
	return p.at < len(p.expr) && strings.IndexByte("?*+{", p.expr[p.at]) >= 0
}
