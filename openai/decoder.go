package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/kv"
)

// decoder reads values as Go types, for a server or for a proxy. For a server it keeps the
// first fault; what it reads after that is without meaning and harmless. For a proxy it is
// lenient: a worker judges the request, so a field of the wrong type counts as not given,
// and a fault in a field of the prompt is the doubt.
type decoder struct {
	fault    *Error
	lenient  bool
	ofPrompt bool  // the field that is read is a part of the prompt
	doubt    error // the first one
	broken   bool  // what looked like JSON from outside is none

	unknowns UnknownFields
	under    string   // the object that is read, "coppice." or ""
	ignored  []string // paths without indices, each once

	kept []field // a stack: the members of objects that are being read
	buf  []byte

	// Of a proxy, see promptsAt.
	ids  []kv.Token // memory for the tokens of the first prompt
	most int        // tokens that are kept of it
	cut  bool       // it has more
}

func (d *decoder) fail(at place, code, format string, args ...any) {
	switch {
	case d.lenient:
		if d.ofPrompt && d.doubt == nil {
			d.doubt = fmt.Errorf("openai: "+format, args...)
		}
	case d.fault == nil:
		d.fault = invalid(at.String(), code, format, args...)
	}
}

// want is the fault of a value of the wrong type.
func (d *decoder) want(v value, what string) {
	d.fail(v, "invalid_type", "%s is %s, want %s", v, v.kind(), what)
}

// missing is the fault of an object without a member that it must have.
func (d *decoder) missing(at place) {
	d.fail(at, "missing_required_parameter", "%s is missing", at)
}

// isText reports whether v is a string.
func (d *decoder) isText(v value) bool {
	if v.raw[0] != '"' {
		d.want(v, "a string")
		return false
	}
	return true
}

func (d *decoder) text(v value) string {
	if !d.isText(v) {
		return ""
	}
	raw := v.raw[1 : len(v.raw)-1]
	return d.unescaped(raw, bytes.IndexByte(raw, '\\') >= 0)
}

// again is text, in the memory of last if it is the same.
func (d *decoder) again(v value, last string) string {
	if raw := v.raw; raw[0] == '"' && string(raw[1:len(raw)-1]) == last && bytes.IndexByte(raw, '\\') < 0 {
		return last
	}
	return d.text(v)
}

// unescaped is the text of a JSON string, given without its quotes. What is not UTF-8
// becomes U+FFFD.
func (d *decoder) unescaped(raw []byte, escaped bool) string {
	if !escaped && utf8.Valid(raw) {
		return string(raw)
	}
	d.buf = appendUnescaped(d.buf[:0], raw)
	return string(d.buf)
}

// label is again, of at most maxName bytes.
func (d *decoder) label(v value, last string) string {
	s := d.again(v, last)
	if len(s) > maxName && !d.lenient {
		d.fail(v, "invalid_value", "%s has %d bytes, want at most %d: give a hash of it", v, len(s), maxName)
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

// integer takes numbers without a fraction, however they are written, in [lo, hi]; 0 if v
// is none.
func (d *decoder) integer(v value, lo, hi int64) int64 {
	n, _ := d.whole(v, lo, hi)
	return n
}

// whole is integer, and whether v is one. For a proxy the upper limit is the worker's to
// judge.
func (d *decoder) whole(v value, lo, hi int64) (n int64, ok bool) {
	if !v.isNumber() {
		d.want(v, "an integer")
		return 0, false
	}
	most := hi
	if d.lenient {
		most = max(hi, math.MaxInt32)
	}
	if n, ok = whole(v.raw); !ok || n < lo || n > most {
		d.fail(v, "invalid_value", "%s is %s, want an integer from %d to %d", v, short(v.raw), lo, hi)
		return 0, false
	}
	return n, true
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
	if !v.isNumber() {
		d.want(v, "a number")
		return 0
	}
	f, err := strconv.ParseFloat(string(v.raw), 64)
	if err != nil || !(f >= lo && f <= hi) {
		d.fail(v, "invalid_value", "%s is %s, want a number from %v to %v", v, short(v.raw), lo, hi)
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
		d.fail(v, "invalid_value", "%s is %s, want a number above 0, up to %v", v, short(v.raw), hi)
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

// oneOf reads a string that is one of names.
func (d *decoder) oneOf(v value, names ...string) string {
	s, ok := d.among(v, names)
	if !ok && v.raw[0] == '"' {
		d.fail(v, "invalid_value", "%s is %q, want one of %s", v, clip(s), fmt.Sprintf("%q", names))
	}
	return s
}

// among is text, and whether it is one of names.
func (d *decoder) among(v value, names []string) (s string, ok bool) {
	for _, name := range names {
		if len(v.raw) == len(name)+2 && v.raw[0] == '"' && string(v.raw[1:len(name)+1]) == name {
			return name, true
		}
	}
	s = d.text(v)
	return s, slices.Contains(names, s)
}

// list gives the elements of an array.
func (d *decoder) list(v value, what string) iter.Seq2[int, value] {
	return func(yield func(int, value) bool) {
		if v.raw[0] != '[' {
			d.want(v, what)
			return
		}
		s := scanner{b: v.raw, at: 1}
		for i := 0; s.more(i, ']'); i++ {
			raw, _ := s.skip()
			if s.broken || !yield(i, value{raw, v.top}) {
				break
			}
		}
		d.broken = d.broken || s.broken
	}
}

// object gives the members of an object that are not null, in the order in which their
// names come first; of two with one name the last counts. They are on top of d.kept,
// until the caller cuts it back.
func (d *decoder) object(v value, what string) []field {
	if v.raw[0] != '{' {
		d.want(v, what)
		return nil
	}
	s := scanner{b: v.raw}
	return d.members(&s, v, "", nil)
}

// mapFrom is how many members of an object are compared one by one to find two of one name.
const mapFrom = 32

// members is object for the object at s, and goes past its end. The member long, for a
// proxy prompt or messages, is read where it stands, and so looked at once.
func (d *decoder) members(s *scanner, v value, long string, read func(scanner) scanner) []field {
	from := len(d.kept)
	var seen map[string]int
	s.at++
	for i := 0; ; i++ {
		name, ok := s.member(i)
		if !ok {
			break
		}
		if long != "" && string(name) == long {
			*s = read(*s)
			continue
		}
		raw, _ := s.skip()
		if s.broken {
			break
		}
		n := len(d.kept)
		if seen == nil && n-from == mapFrom {
			seen = make(map[string]int, 2*mapFrom)
			for j, f := range d.kept[from:] {
				seen[string(f.name)] = from + j
			}
		}
		at, twice := seen[string(name)]
		if seen == nil {
			at = from + slices.IndexFunc(d.kept[from:], func(f field) bool { return string(f.name) == string(name) })
			twice = at >= from
		}
		switch {
		case twice:
			d.kept[at].raw = raw
		case n-from == maxFields:
			d.fail(v, "invalid_value", "%s has over %d fields", v.nameOr("the body"), maxFields)
			if !d.lenient {
				return nil
			}
		default:
			if d.kept = append(d.kept, field{name, value{raw, v.top}}); seen != nil {
				seen[string(name)] = n
			}
		}
	}
	d.broken = d.broken || s.broken
	given := slices.DeleteFunc(d.kept[from:], func(f field) bool { return f.raw[0] == 'n' })
	d.kept = d.kept[:from+len(given)]
	return given
}

// nameOr is v's path, or what v is called if it is all of the text.
func (v value) nameOr(whole string) string {
	if path := v.String(); path != "" {
		return path
	}
	return whole
}

// tokens reads an array of at most most token ids. Whether the model has them is the
// node's to say.
func (d *decoder) tokens(v value, most int) []kv.Token {
	if v.raw[0] != '[' {
		d.want(v, "an array of token ids")
		return nil
	}
	s := scanner{b: v.raw, at: 1}
	return d.idsAt(&s, v, d.room(v, most), most)
}

// room is memory for the ids of the array v, which is the last in its text.
func (d *decoder) room(v value, most int) []kv.Token {
	if d.lenient {
		return d.ids
	}
	return make([]kv.Token, 0, min(bytes.Count(v.raw, []byte{','})+1, most))
}

// idsAt appends the ids of the array v, which s has entered, to dst.
func (d *decoder) idsAt(s *scanner, v value, dst []kv.Token, most int) []kv.Token {
	dst, truncated, odd := s.ids(dst, most)
	switch {
	case len(odd) > 0:
		d.integer(value{odd, v.top}, 0, math.MaxUint32)
	case truncated && d.lenient:
		d.cut = true
	case truncated:
		d.fail(v, "invalid_value", "%s has over %d token ids", v, most)
	}
	if dst == nil {
		dst = []kv.Token{}
	}
	return dst
}

// texts reads an array of at most most strings.
func (d *decoder) texts(v value, most int) []string {
	var out []string
	for _, e := range d.list(v, "an array of strings") {
		if len(out) == most {
			d.fail(v, "invalid_value", "%s has over %d strings", v, most)
		}
		if out = append(out, d.text(e)); d.fault != nil {
			return nil
		}
	}
	return out
}

// mostIgnored bounds the fields that are named.
const mostIgnored = 32

// unknown refuses a field that no table has, or passes it over. It is a member of what
// prefix says, with elements of lists as "messages[].".
func (d *decoder) unknown(prefix string, f field) {
	if d.lenient {
		return
	}
	if _, found := slices.BinarySearch(harmless, string(f.name)); found || d.unknowns == IgnoreUnknown {
		d.ignore(d.under + prefix + clip(string(f.name)))
		return
	}
	d.fail(f, "unknown_parameter", "Unrecognized request argument supplied: %s", f)
}

// ignore notes a field that was passed over. The name goes into a header.
func (d *decoder) ignore(name string) {
	b := []byte(name)
	for i, c := range b {
		if c <= ' ' || c >= 0x7f || c == ',' {
			b[i] = '?'
		}
	}
	if name = string(b); len(d.ignored) < mostIgnored && !slices.Contains(d.ignored, name) {
		d.ignored = append(d.ignored, name)
	}
}

// maxName bounds cache_salt and class, in bytes, which outlive their request.
const maxName = 1024

// objects reads an array of JSON objects, which are not looked into.
func (d *decoder) objects(v value, most int) []json.RawMessage {
	out := []json.RawMessage{}
	for _, e := range d.list(v, "an array of objects") {
		if len(out) == most && !d.lenient {
			d.fail(v, "invalid_value", "%s has over %d objects", v, most)
		} else if e.raw[0] != '{' {
			d.want(e, "an object")
		}
		if d.fault != nil {
			return nil
		}
		out = append(out, e.raw)
	}
	if d.fault != nil || v.raw[0] != '[' {
		return nil
	}
	return out
}
