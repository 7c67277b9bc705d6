package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/coppice-llm/coppice/internal/bail"
)

// Limits of a body besides its size, which the HTTP side bounds.
const (
	maxDepth  = 64   // nesting of arrays and objects
	maxFields = 1024 // members of an object; objects in a schema are not counted
)

// value is a part of a JSON text. Its path from the top is computed only when an error needs it.
type value struct {
	raw []byte // without white space around it; a part of top that shares its capacity
	top []byte // the whole text
}

// field is a member of an object.
type field struct {
	name []byte
	value
}

// parse returns body, which must be one JSON object. Otherwise it bails out with an *Error.
func parse(body []byte) value {
	v, fault := parseObject(body)
	if fault != nil {
		bail.Out(fault)
	}
	return v
}

// parseObject is parse for a caller that goes on after a fault.
func parseObject(body []byte) (value, *Error) {
	if !shallow(body) {
		return value{}, invalid("", "invalid_json", "the body nests arrays and objects over %d deep", maxDepth)
	}
	if !json.Valid(body) {
		var raw json.RawMessage
		err := json.Unmarshal(body, &raw)
		at := ""
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			at = " at byte " + strconv.FormatInt(syntax.Offset, 10)
		}
		return value{}, invalid("", "invalid_json", "the body is not JSON: %v%s", err, at)
	}
	v := value{raw: bytes.TrimSpace(body), top: body}
	if v.raw[0] != '{' {
		return value{}, invalid("", "invalid_type", "the body is %s, want an object", v.kind())
	}
	return v, nil
}

// shallow reports whether body is nested at most maxDepth deep. The body need not be valid JSON.
func shallow(body []byte) bool {
	depth := 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '{', '[':
			if depth++; depth > maxDepth {
				return false
			}
		case '}', ']':
			depth--
		case '"':
			if end := closing(body, i+1); end >= 0 {
				i = end
			} else {
				return true
			}
		}
	}
	return true
}

// kind returns v's type for an error message.
func (v value) kind() string {
	switch v.raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't':
		return "true"
	case 'f':
		return "false"
	case 'n':
		return "null"
	}
	return "a number"
}

func (v value) isNumber() bool { return v.raw[0] == '-' || '0' <= v.raw[0] && v.raw[0] <= '9' }

// String returns the path from the top, "messages[2].content". It scans the text to find it.
func (v value) String() string {
	at := cap(v.top) - cap(v.raw)
	s := scanner{b: v.top}
	path := ""
	for open := s.next(); s.at < at && (open == '{' || open == '['); open = s.next() {
		s.at++
		for i, inside := 0, false; !inside; i++ {
			step := "[" + strconv.Itoa(i) + "]"
			if open == '{' {
				name, ok := s.member(i)
				if !ok {
					return path
				}
				step = dotted(path, string(name))
			} else if !s.more(i, ']') {
				return path
			}
			from := s.at
			s.skip()
			if inside = at < s.at; inside {
				path += step
				s.at = from
			} else if s.broken {
				return path
			}
		}
	}
	return path
}

// dotted returns what to append to path for its member name: the name, after a dot unless path is
// empty. The client chose the name, so it is shortened.
func dotted(path, name string) string {
	if path == "" {
		return clip(name)
	}
	return "." + clip(name)
}

// place is the position of a fault: a value, a param or a part of a value.
type place interface{ String() string }

// param is the name of a top-level field.
type param string

func (p param) String() string { return string(p) }

// member is the position of a member in an object. The member may be absent.
type member struct {
	of   value
	name string
}

func (m member) String() string {
	path := m.of.String()
	return path + dotted(path, m.name)
}

// element is the position of an element in an array.
type element struct {
	of value
	i  int
}

func (e element) String() string { return e.of.String() + "[" + strconv.Itoa(e.i) + "]" }

func (v value) at(name string) place { return member{v, name} }
func (v value) index(i int) place    { return element{v, i} }
