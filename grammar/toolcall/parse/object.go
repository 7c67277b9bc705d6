package parse

import (
	"encoding/json"
	"strings"
)

// object finds name and arguments in a call that is a JSON object and arrives byte by byte, so
// that a call can be told from other objects, and given before it is complete.
type object struct {
	level int    // depth of the call's keys: 2 if the braces are doubled
	key   string // the last key, with its quotes
	value bool   // after the colon
	begun bool   // something stands in the object
	from  int    // in calls.call: start of the string that is being read
	args  int    // in calls.call: start of the arguments, 0 before them
	end   int    // in calls.call: end of the arguments, 0 before it, 1 if they were given
}

// object reads a byte of a call that is an object.
func (p *calls) object(c byte) bool {
	before, o := p.now.json, &p.now.keys
	if !p.now.json.step(c) {
		return false
	}
	switch {
	case !p.begun:
		p.call = append(p.call, c)
		if !p.member(before, c) {
			p.call = p.call[:len(p.call)-1]
			return false
		}
	case o.end == 0: // still in the arguments
		if p.said = append(p.said, c); p.now.json.depth == o.level {
			o.end = 1
		}
	}
	if p.now.json.depth >= o.level {
		return true
	}
	return p.complete()
}

// member notes what the byte just read means for the members of the call's object. before is the
// state before it. It returns false if the object names no tool where it has to.
func (p *calls) member(before brackets, c byte) bool {
	o, at := &p.now.keys, len(p.call)-1
	if before.depth == o.level+1 && p.now.json.depth == o.level && o.args > 0 && o.end == 0 {
		o.end = at + 1
	}
	if before.depth != o.level {
		return true
	}
	switch {
	case before.quoted && !p.now.json.quoted: // a string has ended
		if !o.value {
			o.key = string(p.call[max(o.from, at-len(`"parameters"`)):])
		} else if o.key == `"name"` {
			return json.Unmarshal(p.call[o.from:], &p.now.name) == nil && (!p.needsTool() || p.tool(p.now.name))
		}
	case before.quoted:
	case c == '"':
		o.from = at
	case c == ':' || c == ',':
		o.value = c == ':'
	case c == '{' && !o.begun: // doubled braces, as the template of Qwen2.5-Coder asks for
		o.level, p.now.body = 2, at
		for range min(2, maxAround-len(p.group.open)) { // one more than was opened is often closed
			p.group.open = append(p.group.open, "}")
		}
		return true
	case c == '{' && o.value && (o.key == `"arguments"` || o.key == `"parameters"`):
		if o.args, o.end = at, 0; p.exact && p.now.name != "" {
			p.begin()
		}
	}
	o.begun = o.begun || strings.IndexByte(spaces, c) < 0
	return true
}

// parts returns name and arguments of an object. ok is false if it is no call: if its name is
// missing, or its arguments are neither an object nor one that is encoded as a string. They may be
// missing if lax is set.
func parts(text []byte, lax bool) (name, arguments string, ok bool) {
	var all map[string]json.RawMessage
	if json.Unmarshal(text, &all) != nil || json.Unmarshal(all["name"], &name) != nil || name == "" {
		return "", "", false
	}
	raw, ok := all["arguments"]
	if !ok {
		raw, ok = all["parameters"]
	}
	if arguments = string(raw); len(raw) == 0 || arguments == "null" {
		return name, "{}", ok || lax
	}
	if raw[0] == '"' && json.Unmarshal(raw, &arguments) != nil {
		return "", "", false
	}
	text = []byte(strings.TrimLeft(arguments, spaces))
	return name, arguments, len(text) > 0 && text[0] == '{' && json.Valid(text)
}

// brackets finds the end of a JSON object that arrives byte by byte. Whether the object is valid is
// not its concern, but it refuses bytes that occur outside of strings in no JSON text.
type brackets struct {
	depth   int
	quoted  bool // inside a string
	escaped bool // after a backslash
}

// step reads a byte. It returns false if the byte can't be part of an object. The object ends when
// depth is 0 again.
func (b *brackets) step(c byte) bool {
	switch {
	case b.escaped:
		b.escaped = false
	case b.quoted:
		b.escaped, b.quoted = c == '\\', c != '"'
		return c >= ' '
	case c == '"':
		b.quoted = true
	case c == '{' || c == '[':
		b.depth++
		return b.depth <= maxDepth
	case c == '}' || c == ']':
		b.depth--
	default:
		return strings.IndexByte(spaces+",:+-.0123456789eEtrufalsn", c) >= 0
	}
	return true
}

// maxDepth bounds the nesting of arguments.
const maxDepth = 64
