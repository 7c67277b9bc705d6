package jsonschema

import (
	"strconv"
	"strings"
)

var pointerUnescapes = strings.NewReplacer("~1", "/", "~0", "~")

// target returns the schema that s's $ref refers to. The result is cached.
func (b *builder) target(s *value) *value {
	if v := b.targets[s]; v != nil {
		return v
	}
	v := b.follow(s)
	b.targets[s] = v
	return v
}

// follow returns the schema that s's $ref refers to. The $ref must be # or # and a JSON pointer.
func (b *builder) follow(s *value) *value {
	ref := s.get("$ref")
	if ref.kind != text {
		wrong(s, "$ref", "must be a string")
	}
	fragment, ok := strings.CutPrefix(ref.text, "#")
	if !ok {
		unsupported(s, "$ref", "%.100q is in another document; put it under $defs here", ref.text)
	}
	if fragment != "" && fragment[0] != '/' {
		unsupported(s, "$ref", "%.100q is an anchor; write it as a JSON pointer", ref.text)
	}
	for p := s; p.parent != nil; p = p.parent {
		if id := p.get("$id"); id != nil && id.kind == text && !strings.HasPrefix(id.text, "#") {
			unsupported(s, "$ref", "inside a schema with its own $id, to which it would be relative")
		}
	}
	path, ok := percentDecoded(fragment)
	if !ok {
		wrong(s, "$ref", "%.100q has a %% without two hexadecimal digits", ref.text)
	}
	v := b.root
	for _, part := range strings.Split(path, "/")[1:] {
		name := pointerUnescapes.Replace(part)
		var next *value
		switch v.kind {
		case object:
			next = v.get(name)
		case array:
			if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(v.members) {
				next = v.members[i]
			}
		}
		if next == nil {
			wrong(s, "$ref", "%.100q does not exist: #%.100s has no %.100q", ref.text, v.pointer(), name)
		}
		v = next
	}
	return v
}

// percentDecoded undoes the escapes of a URI's fragment (RFC 3986, section 2.1). It returns false
// if a % lacks its two hexadecimal digits.
func percentDecoded(s string) (string, bool) {
	first, rest, escaped := strings.Cut(s, "%")
	out := []byte(first)
	for escaped {
		if len(rest) < 2 {
			return "", false
		}
		c, err := strconv.ParseUint(rest[:2], 16, 8)
		if err != nil {
			return "", false
		}
		out = append(out, byte(c))
		first, rest, escaped = strings.Cut(rest[2:], "%")
		out = append(out, first...)
	}
	return string(out), true
}
