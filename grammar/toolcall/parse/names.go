package parse

import "strings"

// bare reports whether a name without quotes may stand here.
func (p *calls) bare() bool {
	r := p.reads
	return r.names && p.group.marked || r.known || p.form.Python && len(p.group.open) > 0
}

// named reads a byte after the first of a word.
func (p *calls) named(c byte) bool {
	if nameByte(c) {
		if p.needsTool() && len(p.call)-p.now.word == p.longest {
			return false
		}
		p.call = append(p.call, c)
		return true
	}
	if !p.now.keeps {
		p.now.name = string(p.call[p.now.word:])
		if all := p.reads.content; all != "" && p.now.name == all && c == '\n' { // no call: the text of the answer
			p.call, p.at = p.call[:0], inText
			return true
		}
		if p.needsTool() && !p.tool(p.now.name) {
			return false
		}
	}
	p.at, p.token, p.white, p.group.latest = inBetween, len(p.call), 0, ""
	return p.between(c)
}

// nameByte reports whether a name without quotes may contain the byte: any that ends no name in
// any form.
func nameByte(c byte) bool {
	return c > ' ' && c != 0x7f && strings.IndexByte("{}[]()<>\"'`,;=|", c) < 0
}

// needsTool reports whether only a tool's name makes the text a call.
func (p *calls) needsTool() bool { return !p.group.marked || p.reads.known }

// between reads a byte between a name and its arguments.
func (p *calls) between(c byte) bool {
	if p.token == len(p.call) {
		r := p.reads
		switch {
		case c == '{':
			p.call = append(p.call, c)
			p.at, p.now.body, p.now.json = inArguments, len(p.call)-1, brackets{}
			p.now.json.step(c)
			if p.exact {
				p.begin()
			}
			return true
		case c == '(' && p.form.Python:
			p.call = append(p.call, c)
			p.at, p.now.py = inPython, newPython()
			return true
		case nameByte(c) && p.group.latest != "" && (p.group.latest == r.renames || p.group.latest == r.id):
			p.now.word, p.now.keeps, p.at = len(p.call), p.group.latest == r.id, inName
			p.call = append(p.call, c)
			return true
		}
	}
	_, ok := p.fixed(c)
	return ok
}

// inside reads a byte of the arguments after a name without quotes.
func (p *calls) inside(c byte) bool {
	if !p.now.json.step(c) {
		return false
	}
	if p.begun {
		p.said = append(p.said, c)
	} else {
		p.call = append(p.call, c)
	}
	if p.now.json.depth > 0 {
		return true
	}
	return p.complete()
}
