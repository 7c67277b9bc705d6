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

	"github.com/coppice-llm/coppice/internal/bail"
	"github.com/coppice-llm/coppice/kv"
)

// decoder decodes JSON values into Go types, for a server or for a proxy. For a server it bails out
// at the first fault. For a proxy it is lenient, because the worker judges the request: a field of
// the wrong type counts as absent, and a fault in a field of the prompt becomes the doubt.
type decoder struct {
	lenient  bool
	ofPrompt bool  // the current field is part of the prompt
	doubt    error // the first doubt about the prompt
	broken   bool  // a nested text turned out not to be JSON

	unknowns UnknownFields
	under    string   // the object being read: "coppice." or ""
	ignored  []string // paths without indices, no duplicates

	kept []field // a stack: members of the objects being read
	buf  []byte

	// For a proxy, see promptsAt.
	ids  []kv.Token // memory for the tokens of the first prompt
	most int        // most tokens of the first prompt to keep
	cut  bool       // the prompt has more
}

// fail bails out with a fault at a place, with the code of the error and its text as for
// fmt.Sprintf. For a proxy it only records the fault, as the doubt, if the current field is part of
// the prompt.
func (d *decoder) fail(at place, code, format string, args ...any) {
	if !d.lenient {
		bail.Out(invalid(at.String(), code, format, args...))
	}
	if d.ofPrompt && d.doubt == nil {
		d.doubt = fmt.Errorf("openai: "+format, args...)
	}
}

// want fails because v has the wrong type. what describes the wanted type, as in "a
// string".
func (d *decoder) want(v value, what string) {
	d.fail(v, "invalid_type", "%s is %s, want %s", v, v.kind(), what)
}

// missing fails because a required member is missing.
func (d *decoder) missing(at place) {
	d.fail(at, "missing_required_parameter", "%s is missing", at)
}

// isText reports whether v is a string, and fails if not.
func (d *decoder) isText(v value) bool {
	if v.raw[0] != '"' {
		d.want(v, "a string")
		return false
	}
	return true
}

// text reads a string. If v is not a string, it fails and returns "".
func (d *decoder) text(v value) string {
	if !d.isText(v) {
		return ""
	}
	raw := v.raw[1 : len(v.raw)-1]
	return d.unescaped(raw, bytes.IndexByte(raw, '\\') >= 0)
}

// again reads a string as text does. last is a string that v is likely to equal, such as the
// field's value in the previous request; if v equals last, again returns last itself and allocates
// nothing.
func (d *decoder) again(v value, last string) string {
	if raw := v.raw; raw[0] == '"' && string(raw[1:len(raw)-1]) == last && bytes.IndexByte(raw, '\\') < 0 {
		return last
	}
	return d.text(v)
}

// unescaped returns the text of a JSON string. raw is the string without its quotes; escaped
// reports whether raw contains a backslash. Invalid UTF-8 becomes U+FFFD.
func (d *decoder) unescaped(raw []byte, escaped bool) string {
	if !escaped && utf8.Valid(raw) {
		return string(raw)
	}
	d.buf = appendUnescaped(d.buf[:0], raw)
	return string(d.buf)
}

// label reads a string as again does. A server refuses a string of more than maxName bytes.
func (d *decoder) label(v value, last string) string {
	s := d.again(v, last)
	if len(s) > maxName && !d.lenient {
		d.fail(v, "invalid_value", "%s has %d bytes, want at most %d: give a hash of it", v, len(s), maxName)
		return ""
	}
	return s
}

// flag reads a boolean. If v is none, it fails and returns false.
func (d *decoder) flag(v value) bool {
	if v.raw[0] != 't' && v.raw[0] != 'f' {
		d.want(v, "true or false")
	}
	return v.raw[0] == 't'
}

// integer reads a number without a fraction, in any notation, from lo to hi. If v is not one, it
// fails and returns 0.
func (d *decoder) integer(v value, lo, hi int64) int64 {
	n, _ := d.whole(v, lo, hi)
	return n
}

// whole reads a number as integer does, and also reports whether v is a valid one. For a proxy it
// accepts numbers above hi up to the largest int32: the worker checks the limit.
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

// whole returns the integer that raw denotes, as 5, 5.0 or 5e0; ok is false if raw denotes none. A
// number with a point or an exponent may be at most 2^53 in magnitude, because float64 is exact
// only up to there.
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

// number reads a number from lo to hi, rounded to 32 bits as the sampler uses it. If v is not one,
// it fails and returns 0.
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

// above reads a number above 0 and at most hi. It serves fields for which the sampler takes 0 as
// "off", which is the opposite of what a request with 0 means. A positive number that rounds to 0
// becomes the smallest positive float32.
func (d *decoder) above(v value, hi float64) float32 {
	f := d.number(v, 0, hi)
	if f == 0 {
		if f, err := strconv.ParseFloat(string(v.raw), 64); err == nil && f > 0 {
			return math.SmallestNonzeroFloat32
		}
		d.fail(v, "invalid_value", "%s is %s, want a number above 0, up to %v", v, short(v.raw), hi)
	}
	return f
}

// short shortens a number for an error message.
func short(raw []byte) string {
	if len(raw) > 32 {
		return string(raw[:32]) + "…"
	}
	return string(raw)
}

// oneOf reads a string that must be one of names.
func (d *decoder) oneOf(v value, names ...string) string {
	s, ok := d.among(v, names)
	if !ok && v.raw[0] == '"' {
		d.fail(v, "invalid_value", "%s is %q, want one of %s", v, clip(s), fmt.Sprintf("%q", names))
	}
	return s
}

// among reads a string as text does, and also reports whether it is one of names.
func (d *decoder) among(v value, names []string) (s string, ok bool) {
	for _, name := range names {
		if len(v.raw) == len(name)+2 && v.raw[0] == '"' && string(v.raw[1:len(name)+1]) == name {
			return name, true
		}
	}
	s = d.text(v)
	return s, slices.Contains(names, s)
}

// list iterates over the elements of the array v with their indices. If v is not an array, it
// fails, for which what describes the wanted type, and yields nothing.
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

// object returns the members of the object v that are not null, in the order of their first
// occurrence; of two members with the same name the last one counts. The result is the top of the
// stack d.kept and valid until the caller shrinks the stack. If v is not an object, object
// fails, for which what describes the wanted type, and returns nil.
func (d *decoder) object(v value, what string) []field {
	if v.raw[0] != '{' {
		d.want(v, what)
		return nil
	}
	s := scanner{b: v.raw}
	return d.members(&s, v, "", nil)
}

// fields reads the members of the object v: it calls read[name] for the member with that name, and
// unknown for members not in read. prefix is the path of the object, as for unknown.
func (d *decoder) fields(v value, prefix string, read map[string]func(value)) {
	for _, f := range d.object(v, "an object") {
		if set := read[string(f.name)]; set != nil {
			set(f.value)
		} else {
			d.unknown(prefix, f)
		}
	}
}

// mapFrom is the number of members up to which duplicates are searched linearly, not by a map.
const mapFrom = 32

// members does what object does for the object that begins at s.at, and moves s past the object's
// end. v is the object for error messages. The member named long, which for a proxy is the prompt
// or the messages, is not returned: read gets the scanner at its value and returns the scanner
// after it, so that the long text is scanned only once. long may be "".
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

// nameOr returns v's path, or whole if v is the entire text.
func (v value) nameOr(whole string) string {
	if path := v.String(); path != "" {
		return path
	}
	return whole
}

// tokens reads an array of token ids. It fails for an array of more ids than most says. Whether the
// vocabulary has the ids is checked later, by Fits.
func (d *decoder) tokens(v value, most int) []kv.Token {
	if v.raw[0] != '[' {
		d.want(v, "an array of token ids")
		return nil
	}
	s := scanner{b: v.raw, at: 1}
	return d.idsAt(&s, v, d.room(v, most), most)
}

// room returns an empty slice with memory for the ids of the array v. v.raw begins with the array,
// but may be longer. most is the limit on the number of ids.
func (d *decoder) room(v value, most int) []kv.Token {
	if d.lenient {
		return d.ids
	}
	return make([]kv.Token, 0, min(bytes.Count(v.raw, []byte{','})+1, most))
}

// idsAt appends the ids of the array v to dst and moves s, which is after the array's opening
// bracket, past the array. If the array has more ids than most says, it fails, or for a
// proxy sets d.cut. The result is never nil.
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

// texts reads an array of strings. It fails for an array of more strings than most says.
func (d *decoder) texts(v value, most int) []string {
	var out []string
	for _, e := range d.list(v, "an array of strings") {
		if len(out) == most {
			d.fail(v, "invalid_value", "%s has over %d strings", v, most)
		}
		out = append(out, d.text(e))
	}
	return out
}

// maxIgnored bounds the ignored fields that an answer names.
const maxIgnored = 32

// unknown handles the member f, whose name is in no table: it ignores f if the name is harmless or
// the options say so, and refuses f otherwise. prefix is the path of the object that contains f,
// with list elements as "messages[].".
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

// ignore records an ignored field. Its name is made fit for a header.
func (d *decoder) ignore(name string) {
	b := []byte(name)
	for i, c := range b {
		if c <= ' ' || c >= 0x7f || c == ',' {
			b[i] = '?'
		}
	}
	if name = string(b); len(d.ignored) < maxIgnored && !slices.Contains(d.ignored, name) {
		d.ignored = append(d.ignored, name)
	}
}

// maxName bounds cache_salt and class, in bytes, because both outlive their request.
const maxName = 1024

// objects reads an array of JSON objects without decoding them; nil if v is no array. For a server
// it fails if the array has more objects than most says.
func (d *decoder) objects(v value, most int) []json.RawMessage {
	out := []json.RawMessage{}
	for _, e := range d.list(v, "an array of objects") {
		if len(out) == most && !d.lenient {
			d.fail(v, "invalid_value", "%s has over %d objects", v, most)
		} else if e.raw[0] != '{' {
			d.want(e, "an object")
		}
		out = append(out, e.raw)
	}
	if v.raw[0] != '[' {
		return nil
	}
	return out
}
