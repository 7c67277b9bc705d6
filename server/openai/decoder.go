package openai

import (
	"fmt"
	"math"
	"strconv"

	"github.com/coppice-llm/coppice/kv"
)

// decoder reads values as types. It keeps the first fault; what is read after that
// is without meaning and harmless.
type decoder struct {
	fault    *Error
	unknowns UnknownFields
	ignored  []string // paths without indices, each once
}

func (d *decoder) fail(param, code, format string, args ...any) {
	if d.fault == nil {
		d.fault = invalid(param, code, format, args...)
	}
}

// want is the fault of a value of the wrong type.
func (d *decoder) want(v value, what string) {
	d.fail(v.path, "invalid_type", "%s is %s, want %s", v.path, v.kind(), what)
}

func (d *decoder) text(v value) string {
	if v.raw[0] != '"' {
		d.want(v, "a string")
		return ""
	}
	return unquote(v.raw)
}

// label is a text of at most MaxName bytes.
func (d *decoder) label(v value) string {
	s := d.text(v)
	if len(s) > MaxName {
		d.fail(v.path, "invalid_value", "%s has %d bytes, want at most %d: give a hash of it", v.path, len(s), MaxName)
		return ""
	}
	return s
}

func (d *decoder) flag(v value) bool {
	if v.raw[0] != 't' && v.raw[0] != 'f' {
		d.want(v, "true or false")
	}
	return v.raw[0] == 't'
}

// integer takes numbers without a fraction, however they are written, in [lo, hi].
func (d *decoder) integer(v value, lo, hi int64) int64 {
	if v.kind() != "a number" {
		d.want(v, "an integer")
		return 0
	}
	n, ok := whole(v.raw)
	if !ok || n < lo || n > hi {
		d.fail(v.path, "invalid_value", "%s is %s, want an integer from %d to %d", v.path, short(v.raw), lo, hi)
		return 0
	}
	return n
}

// whole is the integer that raw stands for, 5, 5.0 or 5e0; false if it is none or
// beyond what is exact.
func whole(raw []byte) (int64, bool) {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// number takes numbers in [lo, hi], as the sampler will see them: rounded to 32 bits.
func (d *decoder) number(v value, lo, hi float64) float32 {
	if v.kind() != "a number" {
		d.want(v, "a number")
		return 0
	}
	f, err := strconv.ParseFloat(string(v.raw), 64)
	if err != nil || !(f >= lo && f <= hi) {
		d.fail(v.path, "invalid_value", "%s is %s, want a number from %v to %v", v.path, short(v.raw), lo, hi)
		return 0
	}
	return float32(f)
}

// above is number in (0, hi]: of what the sampler takes 0 to mean off, 0 would be the
// opposite of what is asked for. What 32 bits round to 0 is the least number above it.
func (d *decoder) above(v value, hi float64) float32 {
	f := d.number(v, 0, hi)
	if d.fault == nil && f == 0 {
		if f, err := strconv.ParseFloat(string(v.raw), 64); err == nil && f > 0 {
			return math.SmallestNonzeroFloat32
		}
		d.fail(v.path, "invalid_value", "%s is %s, want a number above 0, up to %v", v.path, short(v.raw), hi)
	}
	return f
}

// short keeps a number of a thousand digits out of the error.
func short(raw []byte) string {
	if len(raw) > 32 {
		return string(raw[:32]) + "…"
	}
	return string(raw)
}

func (d *decoder) isList(v value, what string) bool {
	if v.raw[0] != '[' {
		d.want(v, what)
		return false
	}
	return true
}

// object gives the fields of an object that are not null.
func (d *decoder) object(v value, what string) []field {
	if v.raw[0] != '{' {
		d.want(v, what)
		return nil
	}
	all, ok := v.fields()
	if !ok {
		d.fail(v.path, "invalid_value", "%s has over %d fields", v.name(), MaxFields)
	}
	return all
}

func (v value) name() string {
	if v.path == "" {
		return "the body"
	}
	return v.path
}

// tokens reads an array of at most most token ids. Whether the model has them is the
// node's to say.
func (d *decoder) tokens(v value, most int) []kv.Token {
	if !d.isList(v, "an array of token ids") {
		return nil
	}
	out := []kv.Token{}
	for i, e := range v.elements() {
		if len(out) == most {
			d.fail(v.path, "invalid_value", "%s has over %d token ids", v.path, most)
			return nil
		}
		n, ok := digits(e.raw)
		if !ok {
			e.path = v.index(i)
			n = kv.Token(d.integer(e, 0, math.MaxUint32))
			if d.fault != nil {
				return nil
			}
		}
		out = append(out, n)
	}
	return out
}

// digits is the usual way in which a token id is written.
func digits(raw []byte) (kv.Token, bool) {
	n := kv.Token(0)
	for _, c := range raw {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + kv.Token(c-'0')
	}
	return n, len(raw) < 10
}

// texts reads an array of at most most strings.
func (d *decoder) texts(v value, most int) []string {
	var out []string
	if !d.isList(v, "an array of strings") {
		return nil
	}
	for i, e := range v.elements() {
		if len(out) == most {
			d.fail(v.path, "invalid_value", "%s has over %d strings", v.path, most)
			return nil
		}
		e.path = v.index(i)
		out = append(out, d.text(e))
		if d.fault != nil {
			return nil
		}
	}
	return out
}

// oneOf reads a string that is one of names.
func (d *decoder) oneOf(v value, names ...string) string {
	s := d.text(v)
	for _, name := range names {
		if s == name {
			return s
		}
	}
	d.fail(v.path, "invalid_value", "%s is %q, want one of %s", v.path, clip(s), fmt.Sprintf("%q", names))
	return s
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
