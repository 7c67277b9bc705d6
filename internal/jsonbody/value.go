package jsonbody

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/internal/bail"
)

// Limits of a body besides its size, which the HTTP side bounds.
const (
	MaxDepth  = 64   // nesting of arrays and objects
	MaxFields = 1024 // members of an object; objects in a schema are not counted
)

// Value is a part of a JSON text. Its path from the top is computed only when an error needs it.
type Value struct {
	Raw []byte // without white space around it; a part of top that shares its capacity
	Top []byte // the whole text
}

// Field is a member of an object.
type Field struct {
	Name []byte
	Value
}

// Parse returns body, which must be one JSON object. Otherwise it bails out with an *Error.
func Parse(body []byte) Value {
	v, fault := ParseObject(body)
	if fault != nil {
		bail.Out(fault)
	}
	return v
}

// ParseObject is parse for a caller that goes on after a fault.
func ParseObject(body []byte) (Value, *Fault) {
	if !Shallow(body) {
		return Value{}, newFault("", "invalid_json", "the body nests arrays and objects over %d deep", MaxDepth)
	}
	if !json.Valid(body) {
		var raw json.RawMessage
		err := json.Unmarshal(body, &raw)
		at := ""
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			at = " at byte " + strconv.FormatInt(syntax.Offset, 10)
		}
		return Value{}, newFault("", "invalid_json", "the body is not JSON: %v%s", err, at)
	}
	v := Value{Raw: bytes.TrimSpace(body), Top: body}
	if v.Raw[0] != '{' {
		return Value{}, newFault("", "invalid_type", "the body is %s, want an object", v.Kind())
	}
	return v, nil
}

// Shallow reports whether body is nested at most MaxDepth deep. The body need not be valid JSON.
func Shallow(body []byte) bool {
	depth := 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '{', '[':
			if depth++; depth > MaxDepth {
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

// Kind returns v's type for an error message.
func (v Value) Kind() string {
	switch v.Raw[0] {
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

func (v Value) isNumber() bool { return v.Raw[0] == '-' || '0' <= v.Raw[0] && v.Raw[0] <= '9' }

// String returns the path from the top, "messages[2].content". It scans the text to find it.
func (v Value) String() string {
	at := cap(v.Top) - cap(v.Raw)
	s := Scanner{B: v.Top}
	path := ""
	for open := s.Next(); s.At < at && (open == '{' || open == '['); open = s.Next() {
		s.At++
		for i, inside := 0, false; !inside; i++ {
			step := "[" + strconv.Itoa(i) + "]"
			if open == '{' {
				name, ok := s.member(i)
				if !ok {
					return path
				}
				step = dotted(path, string(name))
			} else if !s.More(i, ']') {
				return path
			}
			from := s.At
			s.Skip()
			if inside = at < s.At; inside {
				path += step
				s.At = from
			} else if s.Broken {
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
		return Clip(name)
	}
	return "." + Clip(name)
}

// Place is the position of a fault: a value, a param or a part of a value.
type Place interface{ String() string }

// Param is the name of a top-level field.
type Param string

func (p Param) String() string { return string(p) }

// member is the position of a member in an object. The member may be absent.
type member struct {
	of   Value
	name string
}

func (m member) String() string {
	path := m.of.String()
	return path + dotted(path, m.name)
}

// element is the position of an element in an array.
type element struct {
	of Value
	i  int
}

func (e element) String() string { return e.of.String() + "[" + strconv.Itoa(e.i) + "]" }

func (v Value) At(name string) Place { return member{v, name} }
func (v Value) Index(i int) Place    { return element{v, i} }

// Placeholder returns a text that stands for v, a value that is not text, in the prompt that a proxy routes by. Equal values
// get equal texts, and different values different ones (except for hash collisions), so that prompts that differ only there
// have different hashes.
func (v Value) Placeholder() string { return fmt.Sprintf("<|no text %016x|>", xxh3.Hash(v.Raw)) }
