package chat

import (
	"strconv"
)

// tuple parses expressions separated by commas: a tuple, or a single expression.
func (p *parser) tuple() expr { return p.tupleOf(p.expression) }

func (p *parser) tupleOf(one func() expr) expr {
	first := one()
	if !p.is(tokOperator, ",") {
		return first
	}
	s := &sequence{items: []expr{first}, tuple: true}
	for p.skipIf(tokOperator, ",") {
		if p.is(tokBlockEnd) || p.is(tokPrintEnd) || p.is(tokOperator, ")") {
			break
		}
		s.items = append(s.items, one())
	}
	return s
}

func (p *parser) items(end string) []expr {
	var out []expr
	for !p.skipIf(tokOperator, end) {
		out = append(out, p.expression())
		if !p.is(tokOperator, end) {
			p.expect(tokOperator, ",")
		}
	}
	return out
}

// expression parses a conditional expression: yes if test else no.
func (p *parser) expression() expr {
	before := p.depth
	defer func() { p.depth = before }()
	p.deeper()
	e := p.or()
	for p.skipIf(tokName, "if") {
		p.deeper()
		c := &conditional{yes: e, test: p.or()}
		if p.skipIf(tokName, "else") {
			c.no = p.expression()
		}
		e = c
	}
	return e
}

// Chains of operators are bounded like nesting: a chain of n operators makes a tree n levels deep.

func (p *parser) or() expr  { return p.logic(p.and, "or") }
func (p *parser) and() expr { return p.logic(p.not, "and") }

func (p *parser) logic(operand func() expr, word string) expr {
	left := operand()
	for range p.chain(tokName, word) {
		p.next()
		left = &logic{left, operand(), word == "or"}
	}
	return left
}

func (p *parser) not() expr {
	if !p.is(tokName, "not") || p.peek().text == "in" && p.peek().kind == tokName {
		return p.compare()
	}
	p.deeper()
	defer func() { p.depth-- }()
	p.next()
	return &unary{"not", p.not()}
}

func (p *parser) compare() expr {
	c := &compare{first: p.sum()}
	for {
		switch {
		case p.is(tokOperator, "==", "!=", "<", "<=", ">", ">="), p.is(tokName, "in"):
			c.ops = append(c.ops, p.next().text)
		case p.is(tokName, "not") && p.peek().kind == tokName && p.peek().text == "in":
			p.next()
			p.next()
			c.ops = append(c.ops, "not in")
		case c.ops == nil:
			return c.first
		default:
			return c
		}
		c.rest = append(c.rest, p.sum())
	}
}

func (p *parser) sum() expr     { return p.binary(p.joined, "+", "-") }
func (p *parser) joined() expr  { return p.binary(p.product, "~") }
func (p *parser) product() expr { return p.binary(p.power, "*", "/", "//", "%") }
func (p *parser) power() expr   { return p.binary(func() expr { return p.unary(true) }, "**") }

func (p *parser) binary(operand func() expr, ops ...string) expr {
	left := operand()
	for range p.chain(tokOperator, ops...) {
		op := p.next().text
		left = &binary{op, left, operand()}
	}
	return left
}

// chain yields once for each operator of a chain: as long as the next token is of that kind and
// one of ops. Each operator counts as one more level of nesting until the chain ends.
func (p *parser) chain(kind tokenKind, ops ...string) func(yield func() bool) {
	return func(yield func() bool) {
		before := p.depth
		defer func() { p.depth = before }()
		for p.is(kind, ops...) {
			p.deeper()
			if !yield() {
				return
			}
		}
	}
}

func (p *parser) unary(filtered bool) expr {
	p.deeper()
	defer func() { p.depth-- }()
	if p.is(tokOperator, "-", "+") {
		return p.postfix(&unary{p.next().text, p.unary(false)}, filtered)
	}
	return p.postfix(p.primary(), filtered)
}

// postfix parses .name, [key], (arguments), and if filtered also |filter and is test. After a
// filter or a test, only further filters, tests and calls may follow.
func (p *parser) postfix(e expr, filtered bool) expr {
	before := p.depth
	defer func() { p.depth = before }()
	for late := false; ; {
		switch {
		case p.is(tokOperator, "."), p.is(tokOperator, "["):
			if late {
				return e
			}
			p.deeper()
			e = p.subscript(e)
		case p.is(tokOperator, "("):
			p.deeper()
			made := &call{e, p.arguments()}
			p.calls = append(p.calls, made)
			e = made
		case filtered && p.is(tokOperator, "|"):
			p.deeper()
			p.next()
			e, late = p.filter(e), true
		case filtered && p.is(tokName, "is"):
			p.deeper()
			p.next()
			e, late = p.test(e), true
		default:
			return e
		}
	}
}

// filter parses the name and the arguments of a filter that is applied to of. Like Jinja, it
// accepts an unknown filter inside an if statement, because some templates test whether a filter
// exists before they use it.
func (p *parser) filter(of expr) *filterCall {
	f := &filterCall{of: of, name: p.expect(tokName).text}
	if p.library.filters[f.name] == nil && p.ifs == 0 {
		p.unsupported("the filter %q", f.name)
	}
	if p.is(tokOperator, "(") {
		f.args = p.arguments()
	}
	return f
}

func (p *parser) test(of expr) expr {
	negated := p.skipIf(tokName, "not")
	t := &testCall{of: of, name: p.expect(tokName).text}
	if _, ok := p.library.tests[t.name]; !ok {
		p.unsupported("the test %q", t.name)
	}
	switch {
	case p.is(tokOperator, "("):
		t.args = p.arguments()
	case p.is(tokName, "is"):
		p.fail("two tests in a row")
	case p.is(tokName) && !p.is(tokName, "else", "or", "and"), p.is(tokString), p.is(tokInteger), p.is(tokFloat), p.is(tokOperator, "[", "{"):
		arg := p.primary()
		for p.is(tokOperator, ".", "[") {
			arg = p.subscript(arg)
		}
		t.args.positional = []expr{arg}
	}
	if negated {
		return &unary{"not", t}
	}
	return t
}

func (p *parser) subscript(e expr) expr {
	if p.next().text == "." {
		if p.is(tokInteger) {
			return &item{e, &literal{p.integer(p.next().text)}}
		}
		return &attribute{e, p.expect(tokName).text}
	}
	var parts [3]expr
	colons := 0
	for !p.is(tokOperator, "]") {
		if p.skipIf(tokOperator, ":") {
			if colons++; colons > 2 {
				p.fail("a slice of four parts")
			}
			continue
		}
		if parts[colons] != nil {
			p.unsupported("subscripts with commas")
		}
		parts[colons] = p.expression()
	}
	p.next()
	if colons > 0 {
		return &slice{e, parts[0], parts[1], parts[2]}
	}
	if parts[0] == nil {
		p.fail("an empty subscript")
	}
	return &item{e, parts[0]}
}

func (p *parser) arguments() argExprs {
	var a argExprs
	p.expect(tokOperator, "(")
	for !p.skipIf(tokOperator, ")") {
		if p.is(tokOperator, "*", "**") {
			p.unsupported("calls with %s", p.now().text)
		}
		if p.is(tokName) && p.peek().kind == tokOperator && p.peek().text == "=" {
			a.names = append(a.names, p.next().text)
			p.next()
			a.named = append(a.named, p.expression())
		} else {
			if a.names != nil {
				p.fail("an argument without a name after one with a name")
			}
			a.positional = append(a.positional, p.expression())
		}
		if !p.is(tokOperator, ")") {
			p.expect(tokOperator, ",")
		}
	}
	return a
}

func (p *parser) primary() expr {
	t := p.next()
	switch t.kind {
	case tokName:
		switch t.text {
		case "true", "True":
			return &literal{true}
		case "false", "False":
			return &literal{false}
		case "none", "None":
			return &literal{nil}
		}
		if reserved(t.text) {
			p.fail("unexpected %q", t.text)
		}
		return &name{t.text}
	case tokString:
		text := t.text
		for p.is(tokString) {
			text += p.next().text
		}
		return &literal{text}
	case tokInteger:
		return &literal{p.integer(t.text)}
	case tokFloat:
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			p.fail("the number %s is out of range", t.text)
		}
		return &literal{f}
	case tokOperator:
		switch t.text {
		case "(":
			return p.parenthesis()
		case "[":
			return &sequence{items: p.items("]")}
		case "{":
			return p.mapping()
		}
	}
	p.fail("unexpected %q", t.text)
	return nil
}

func (p *parser) integer(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		p.unsupported("the number %s, which needs more than 64 bits", text)
	}
	return n
}

func (p *parser) parenthesis() expr {
	if p.skipIf(tokOperator, ")") {
		return &sequence{tuple: true}
	}
	e := p.tuple()
	p.expect(tokOperator, ")")
	return e
}

func (p *parser) mapping() expr {
	m := &mapping{}
	for !p.skipIf(tokOperator, "}") {
		m.keys = append(m.keys, p.expression())
		p.expect(tokOperator, ":")
		m.values = append(m.values, p.expression())
		if !p.is(tokOperator, "}") {
			p.expect(tokOperator, ",")
		}
	}
	return m
}
