package chat

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A template's value is one of: nil (None), bool, int64, float64, string, wide, *list, *dict,
// *namespace, undefined, *loop, function, method, *macro.

// wide is a JSON integer that does not fit 64 bits. It prints unchanged; arithmetic with it
// fails.
type wide string

// list is a list or, with tuple set, a tuple. Templates can't change either: Hugging Face's
// environment is a sandbox of immutable values.
type list struct {
	items []any
	tuple bool
}

// dict is a dictionary in insertion order.
type dict struct {
	keys   []any
	values []any
	at     map[any]int // index of a key, as converted by hashed
}

// dictSteps is the number of steps that a dictionary and each of its entries cost: an entry takes about
// 100 bytes.
const dictSteps = 8

func newDict() *dict { return &dict{at: map[any]int{}} }

// set sets the value of key, which must be hashable.
func (d *dict) set(key, value any) {
	h := hashed(key)
	if i, ok := d.at[h]; ok {
		d.values[i] = value
		return
	}
	d.at[h] = len(d.keys)
	d.keys = append(d.keys, key)
	d.values = append(d.values, value)
}

func (d *dict) get(key any) (any, bool) {
	if !hashable(key) {
		return nil, false
	}
	i, ok := d.at[hashed(key)]
	if !ok {
		return nil, false
	}
	return d.values[i], true
}

// hashed converts keys that are equal in Python to the same key: 1, 1.0 and True.
func hashed(key any) any {
	switch k := key.(type) {
	case bool:
		if k {
			return int64(1)
		}
		return int64(0)
	case float64:
		if n := int64(k); math.Abs(k) < 1<<53 && float64(n) == k {
			return n
		}
	}
	return key
}

// hashable reports whether v can be a key.
func hashable(key any) bool {
	switch key.(type) {
	case nil, bool, int64, float64, string, wide:
		return true
	}
	return false
}

// namespace is a value that {% set ns.x = ... %} can change.
type namespace struct{ fields *dict }

// undefined is a missing name or attribute. It acts as an empty value; a use that an empty value
// does not allow is an error, and its text includes why.
type undefined struct{ why string }

// function is a global function; method is a method of a value that has not been called yet.
type (
	function func(r *run, a *arguments) any
	method   struct {
		of   any
		name string
	}
)

// truth implements Python's bool(v).
func truth(v any) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case *list:
		return len(v.items) > 0
	case *dict:
		return len(v.keys) > 0
	}
	return true
}

// typeName returns Python's name of v's type.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int64, wide:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *list:
		if v.tuple {
			return "tuple"
		}
		return "list"
	case *dict:
		return "dict"
	case *namespace:
		return "namespace"
	case undefined:
		return "Undefined"
	}
	return "function"
}

// text implements Python's str(v).
func (r *run) text(v any) string {
	switch v := v.(type) {
	case undefined:
		return ""
	case string:
		return v
	}
	return r.repr(v)
}

// maxDepth bounds the nesting of values and of a template's expressions.
const maxDepth = 200

// floatText implements Python's repr of a float: the shortest digits that identify it, with an
// exponent below 1e-4 and from 1e16 on.
func floatText(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.ContainsRune(s, '.') {
		s += ".0"
	}
	return s
}

// quoted appends s to b in quotes. escape returns how a character of n bytes is written, "" if as it is.
func (r *run) quoted(b *strings.Builder, s string, as *style) {
	mark, escape := as.quoting(s)
	r.spendText(len(s))
	total := len(`""`)
	for i := 0; i < len(s); {
		c, n := utf8.DecodeRuneInString(s[i:])
		total += cmp.Or(len(escape(c, n)), n)
		i += n
	}
	r.room(b.Len(), total)
	b.Grow(total)
	b.WriteByte(mark)
	for i := 0; i < len(s); {
		c, n := utf8.DecodeRuneInString(s[i:])
		b.WriteString(cmp.Or(escape(c, n), s[i:i+n]))
		i += n
	}
	b.WriteByte(mark)
}

// shortEscapes are the escapes of ASCII characters that have a letter of their own, or none but a
// backslash.
var shortEscapes = [utf8.RuneSelf]string{'\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`, '\\': `\\`, '"': `\"`, '\'': `\'`}

// reprEscape returns the escapes of Python's repr between these marks.
func reprEscape(mark rune) func(c rune, n int) string {
	return func(c rune, n int) string {
		switch {
		case c == mark || c == '\\' || c == '\n' || c == '\r' || c == '\t':
			return shortEscapes[c]
		case c == utf8.RuneError && n == 1, unicode.IsPrint(c):
			return ""
		case c <= 0xFF:
			return fmt.Sprintf(`\x%02x`, c)
		case c <= 0xFFFF:
			return fmt.Sprintf(`\u%04x`, c)
		}
		return fmt.Sprintf(`\U%08x`, c)
	}
}

// isSpace implements Python's str.isspace of one character.
func isSpace(r rune) bool { return unicode.IsSpace(r) || 0x1C <= r && r <= 0x1F }
