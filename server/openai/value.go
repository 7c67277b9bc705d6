package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"strconv"
	"unicode/utf8"
)

// Limits of a body, beside its size, which the HTTP side bounds.
const (
	MaxDepth  = 64   // of nested arrays and objects
	MaxFields = 1024 // of one object that is read; those of a schema are not counted
)

// value is a part of a JSON text that is known to be sound, and its path from the
// top, "messages[2].content".
type value struct {
	raw  []byte // without space around it
	path string
}

// field is a member of an object.
type field struct {
	name string
	value
}

// parse checks that body is one JSON object.
func parse(body []byte) (value, *Error) {
	if !shallow(body) {
		return value{}, invalid("", "invalid_json", "the body nests arrays and objects over %d deep", MaxDepth)
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
	v := value{raw: bytes.TrimSpace(body)}
	if v.raw[0] != '{' {
		return value{}, invalid("", "invalid_type", "the body is %s, want an object", v.kind())
	}
	return v, nil
}

// shallow tells whether body keeps to MaxDepth. It need not be sound, and is walked
// without recursion.
func shallow(body []byte) bool {
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
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		}
	}
	return true
}

// kind names v's type in an error.
func (v value) kind() string {
	switch v.raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return string(v.raw)
	case 'n':
		return "null"
	}
	return "a number"
}

func (v value) null() bool { return v.raw[0] == 'n' }

// at is v's member or element of that name, as errors call it.
func (v value) at(name string) string {
	name = clip(name) // it is the sender's, and may be as long as the body
	if v.path == "" {
		return name
	}
	return v.path + "." + name
}

func (v value) index(i int) string { return v.path + "[" + strconv.Itoa(i) + "]" }

// elements gives the elements of an array, without their paths.
func (v value) elements() iter.Seq2[int, value] {
	return func(yield func(int, value) bool) {
		at := space(v.raw, 1)
		for i := 0; v.raw[at] != ']'; i++ {
			end := skip(v.raw, at)
			if !yield(i, value{raw: v.raw[at:end]}) {
				return
			}
			if at = space(v.raw, end); v.raw[at] == ',' {
				at = space(v.raw, at+1)
			}
		}
	}
}

// fields gives the members of an object that are not null, in the order in which
// their names come first; false if there are over MaxFields.
func (v value) fields() (_ []field, ok bool) {
	var all []field
	seen := map[string]int{}
	for at := space(v.raw, 1); v.raw[at] != '}'; {
		end := skip(v.raw, at)
		name := unquote(v.raw[at:end])
		at = space(v.raw, space(v.raw, end)+1) // over the colon
		end = skip(v.raw, at)
		if i, twice := seen[name]; twice {
			all[i].raw = v.raw[at:end]
		} else {
			if len(all) == MaxFields {
				return nil, false
			}
			seen[name] = len(all)
			all = append(all, field{name, value{v.raw[at:end], v.at(name)}})
		}
		if at = space(v.raw, end); v.raw[at] == ',' {
			at = space(v.raw, at+1)
		}
	}
	given := all[:0]
	for _, f := range all {
		if !f.null() {
			given = append(given, f)
		}
	}
	return given, true
}

// space is where what follows on the space at i begins.
func space(raw []byte, i int) int {
	for raw[i] == ' ' || raw[i] == '\t' || raw[i] == '\n' || raw[i] == '\r' {
		i++
	}
	return i
}

// skip is the end of the value that begins at i.
func skip(raw []byte, i int) int {
	depth := 0
	for ; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 {
				return i
			}
		case ',', ' ', '\t', '\n', '\r', ':':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}

// unquote is the text of a JSON string; what is not UTF-8 becomes U+FFFD.
func unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		panic("openai: a string of a sound text is none: " + string(raw)) // parse let it pass
	}
	return s
}
