package parse

import (
	"slices"
	"strings"
)

// lead begins to read what stands before a call, at the end of call.
func (p *calls) lead() {
	p.at, p.now, p.group.latest = inLead, current{}, ""
	p.token, p.white = len(p.call), 0
}

// enter begins a call of which the name is known already, before its arguments.
func (p *calls) enter(name string) {
	p.call, p.from, p.held, p.group = p.call[:0], 0, "", group{marked: true}
	p.lead()
	p.at, p.now.name = inBetween, name
}

// before reads a byte before a call.
func (p *calls) before(c byte) bool {
	if p.token == len(p.call) {
		switch {
		case c == '{':
			p.call = append(p.call, c)
			p.at, p.now.body, p.now.keys, p.now.json = inObject, len(p.call)-1, object{level: 1}, brackets{}
			return p.now.json.step(c)
		case nameByte(c) && p.bare():
			p.now.word, p.now.keeps, p.at = len(p.call), false, inName
			p.call = append(p.call, c)
			return true
		}
	}
	text, ok := p.fixed(c)
	p.opened(text)
	return ok
}

// fixed reads a byte of white space, or of one of the texts that may stand here. It returns the
// text once it is complete. ok is false if the byte is neither.
func (p *calls) fixed(c byte) (text string, ok bool) {
	if p.token == len(p.call) && strings.IndexByte(spaces, c) >= 0 {
		if p.white++; p.white > heldSpace {
			return "", false
		}
		p.call = append(p.call, c)
		p.token = len(p.call)
		return "", true
	}
	p.call = append(p.call, c)
	seen := string(p.call[p.token:])
	for text := range p.expected {
		switch {
		case text == seen:
			p.token, p.white, p.group.latest = len(p.call), 0, text
			return text, true
		case strings.HasPrefix(text, seen):
			return "", true
		}
	}
	p.call = p.call[:len(p.call)-1]
	return "", false
}

// expected yields the texts that may stand here.
func (p *calls) expected(yield func(string) bool) {
	r, closes, texts := p.reads, p.group.open, p.reads.before
	switch p.at {
	case inBetween:
		closes, texts = nil, r.between
	case inClose:
		closes, texts = p.group.open[p.group.base:], r.after
		if !yield(r.close) {
			return
		}
	}
	for _, m := range r.marks {
		if p.at == inLead && !p.group.marked && !yield(m.open) {
			return
		}
	}
	for i := len(closes) - 1; i >= 0; i-- {
		if !yield(closes[i]) {
			return
		}
	}
	for _, text := range texts {
		if !yield(text) {
			return
		}
	}
	for _, a := range r.around {
		if p.at == inLead && len(p.group.open) < maxAround && !yield(a.open) {
			return
		}
	}
}

// maxAround bounds the texts around calls that wait to be closed.
const maxAround = 4

// opened notes a fixed text that was read before or after a call.
func (p *calls) opened(text string) {
	i := len(p.group.open) - 1
	for i >= 0 && p.group.open[i] != text {
		i--
	}
	if i >= 0 { // what was opened after it is closed as well
		p.group.open, p.group.base = p.group.open[:i], min(p.group.base, i)
		if p.group.some && p.at == inLead { // it belongs to the calls
			p.call, p.token, p.from = p.call[:0], 0, 0
			if p.group.marked && i == 0 {
				p.at = inText
			}
		}
		return
	}
	if p.at != inLead || text == "" {
		return
	}
	if i := slices.IndexFunc(p.reads.marks, func(m pair) bool { return m.open == text }); i >= 0 {
		p.mark(p.reads.marks[i])
	} else if i := slices.IndexFunc(p.reads.around, func(a pair) bool { return a.open == text }); i >= 0 {
		p.group.open = append(p.group.open, p.reads.around[i].close)
	}
}

// mark notes a mark that was read.
func (p *calls) mark(m pair) {
	p.from, p.group = len(p.call), group{marked: true}
	if m.close != "" {
		p.group.open, p.group.base = []string{m.close}, 1
	}
}

// after reads a byte before the text that closes a call.
func (p *calls) after(c byte) bool {
	text, ok := p.fixed(c)
	if text != "" && text == p.reads.close {
		p.group.open = p.group.open[:p.group.base]
		return p.finish()
	}
	p.opened(text)
	return ok
}
