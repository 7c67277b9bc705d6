package chat

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/internal/bail"
)

// parser builds the syntax tree (jinja2, parser.py). Errors bail out to parse.
type parser struct {
	tokens []token
	at     int
	depth  int // nesting of expressions and statements
	loops  int // number of enclosing loops
	ifs    int // number of enclosing if statements
	calls  []*call

	library *library
}

func parse(source string, limits Limits) (p *program, err error) {
	defer bail.Recover(&err)
	if len(source) > limits.TemplateBytes {
		return nil, fmt.Errorf("%w: a template of %d bytes; Limits.TemplateBytes is %d", ErrLimit, len(source), limits.TemplateBytes)
	}
	x := &parser{tokens: lex(source), library: newLibrary()}
	body, _ := x.statements()
	return &program{body: body, library: x.library, parts: contents{x.calls}.loop(body, []string{contentKey})}, nil
}

// statements parses up to a tag that begins with one of ends, and consumes and returns its
// name; without ends it parses to the end of the template.
func (p *parser) statements(ends ...string) (body []stmt, end string) {
	p.deeper()
	defer func() { p.depth-- }()
	for {
		switch t := p.next(); t.kind {
		case tokData:
			body = append(body, &data{t.text})
		case tokPrintBegin:
			body = append(body, &print{p.tuple()})
			p.expect(tokPrintEnd, "}}")
		case tokBlockBegin:
			if p.is(tokName, ends...) && len(ends) > 0 {
				return body, p.next().text
			}
			body = append(body, p.statement())
			p.expect(tokBlockEnd, "%}")
		default:
			if len(ends) > 0 {
				p.fail("the template ends where %q is expected", ends)
			}
			return body, ""
		}
	}
}

func (p *parser) statement() stmt {
	t := p.expect(tokName)
	switch t.text {
	case "if":
		return p.choice()
	case "for":
		return p.loop()
	case "set":
		return p.set()
	case "macro":
		return p.macro()
	case "filter":
		f := &filterBlock{filters: p.filters(true)}
		f.body, _ = p.body("endfilter")
		return f
	case "with":
		return p.with()
	case "generation":
		b := &block{}
		b.body, _ = p.body("endgeneration")
		return b
	case "break", "continue":
		if p.loops == 0 {
			p.fail("%q outside of a loop", t.text)
		}
		return &jump{map[string]signal{"break": breaking, "continue": continuing}[t.text]}
	case "block", "extends", "include", "import", "from", "call", "do", "autoescape", "trans", "debug", "print":
		p.unsupported("the tag %q", t.text)
	}
	p.fail("unknown tag %q", t.text)
	return nil
}

func (p *parser) choice() stmt {
	c := &choice{}
	for {
		c.tests = append(c.tests, p.tuple())
		p.ifs++
		body, end := p.body("elif", "else", "endif")
		c.bodies = append(c.bodies, body)
		if end == "else" {
			c.other, end = p.body("endif")
		}
		p.ifs--
		if end == "endif" {
			return c
		}
	}
}

func (p *parser) loop() stmt {
	l := &loopOver{target: p.targets()}
	p.expect(tokName, "in")
	l.over = p.tupleOf(p.or)
	if p.skipIf(tokName, "if") {
		l.where = p.expression()
	}
	if p.is(tokName, "recursive") {
		p.unsupported("recursive loops")
	}
	p.loops++
	body, end := p.body("else", "endfor")
	p.loops--
	l.body = body
	if end == "else" {
		l.other, _ = p.body("endfor")
	}
	return l
}

func (p *parser) set() stmt {
	to := p.targets()
	if p.skipIf(tokOperator, "=") {
		return &assign{to, p.tuple()}
	}
	if to.several != nil {
		p.fail("a block can be assigned to one name only")
	}
	a := &assignBlock{target: to, filters: p.filters(false)}
	a.body, _ = p.body("endset")
	return a
}

// filters parses |name(...)|name...; if bare, the first has no bar.
func (p *parser) filters(bare bool) []filterCall {
	var out []filterCall
	for bare || p.skipIf(tokOperator, "|") {
		bare = false
		out = append(out, *p.filter(nil))
	}
	return out
}

func (p *parser) macro() stmt {
	d := &define{name: p.expect(tokName).text}
	p.expect(tokOperator, "(")
	for !p.skipIf(tokOperator, ")") {
		if p.is(tokOperator, "*", "**") {
			p.unsupported("macros with %s", p.now().text)
		}
		d.params = append(d.params, p.expect(tokName).text)
		if p.skipIf(tokOperator, "=") {
			d.defaults = append(d.defaults, p.expression())
		} else if d.defaults != nil {
			p.fail("a parameter without a default after one that has one")
		}
		if !p.is(tokOperator, ")") {
			p.expect(tokOperator, ",")
		}
	}
	loops := p.loops
	p.loops = 0
	d.body, _ = p.body("endmacro")
	p.loops = loops
	return d
}

func (p *parser) unsupported(format string, args ...any) {
	bail.Out(fmt.Errorf("%w: line %d: %s", ErrUnsupported, p.now().line, fmt.Sprintf(format, args...)))
}

func (p *parser) with() stmt {
	w := &with{}
	for !p.is(tokBlockEnd) {
		if len(w.names) > 0 {
			p.expect(tokOperator, ",")
		}
		w.names = append(w.names, p.expect(tokName).text)
		p.expect(tokOperator, "=")
		w.values = append(w.values, p.expression())
	}
	w.body, _ = p.body("endwith")
	return w
}

// body parses from the end of a tag to a tag that begins with one of ends.
func (p *parser) body(ends ...string) ([]stmt, string) {
	p.expect(tokBlockEnd, "%}")
	return p.statements(ends...)
}

// targets parses the left side of an assignment: one target, or several with commas.
func (p *parser) targets() target {
	one := p.oneTarget()
	if !p.is(tokOperator, ",") {
		return one
	}
	all := target{several: []target{one}}
	for p.skipIf(tokOperator, ",") {
		if p.is(tokName, "in") || p.is(tokOperator, "=") {
			break
		}
		all.several = append(all.several, p.oneTarget())
	}
	return all
}

func (p *parser) oneTarget() target {
	p.deeper()
	defer func() { p.depth-- }()
	if p.skipIf(tokOperator, "(") {
		t := p.targets()
		p.expect(tokOperator, ")")
		return t
	}
	t := p.expect(tokName)
	if reserved(t.text) {
		p.fail("%q can't be assigned to", t.text)
	}
	to := target{name: t.text}
	if p.skipIf(tokOperator, ".") {
		to.field = p.expect(tokName).text
	}
	return to
}

// deeper bounds the recursion: every nested construct calls it.
func (p *parser) deeper() {
	if p.depth++; p.depth > maxDepth {
		bail.Out(fmt.Errorf("%w: line %d: nested over %d deep", ErrLimit, p.now().line, maxDepth))
	}
}

func (p *parser) expect(kind tokenKind, texts ...string) token {
	if !p.is(kind, texts...) {
		if t := p.now(); t.kind == tokEnd {
			p.fail("the template ends where %q is expected", texts)
		} else {
			p.fail("%q where %q is expected", t.text, texts)
		}
	}
	return p.next()
}

func (p *parser) next() token {
	t := p.now()
	if t.kind != tokEnd {
		p.at++
	}
	return t
}

func (p *parser) fail(format string, args ...any) {
	bail.Out(syntaxError(p.now().line, format, args...))
}

func (p *parser) skipIf(kind tokenKind, text string) bool {
	if p.is(kind, text) {
		p.at++
		return true
	}
	return false
}

func (p *parser) is(kind tokenKind, texts ...string) bool {
	t := p.now()
	return t.kind == kind && (len(texts) == 0 || slices.Contains(texts, t.text))
}

func (p *parser) now() token  { return p.tokens[p.at] }
func (p *parser) peek() token { return p.tokens[min(p.at+1, len(p.tokens)-1)] }

// reserved reports whether name is a constant or an operator.
func reserved(name string) bool {
	return slices.Contains([]string{"true", "false", "none", "True", "False", "None", "and", "or", "not", "in", "is", "if", "else"}, name)
}
