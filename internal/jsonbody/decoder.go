package jsonbody

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
)

// Decoder decodes JSON values into Go types, for a server or for a proxy. For a server it bails out
// at the first fault. For a proxy it is lenient, because the worker judges the request: a field of
// the wrong type counts as absent, and a fault in a field of the prompt becomes the doubt.
type Decoder struct {
	Lenient  bool  // for a proxy
	OfPrompt bool  // the current field is part of the prompt
	Doubt    error // the first doubt about the prompt, a *Fault
	Broken   bool  // a nested text turned out not to be JSON

	Ignores func(name string) bool // whether an unknown member is ignored; others are faults. nil: none is
	Under   string                 // the object being read: "coppice." or ""
	Skipped []string               // paths of ignored members without indices, no duplicates

	Kept []Field // a stack: members of the objects being read
	Buf  []byte
}

// Fail bails out with a fault at a place, with the code of the error and its text as for
// fmt.Sprintf. For a proxy it only records the fault, as the doubt, if the current field is part of
// the prompt.
func (d *Decoder) Fail(at Place, code, format string, args ...any) {
	if !d.Lenient {
		bail.Out(newFault(at.String(), code, format, args...))
	}
	if d.OfPrompt && d.Doubt == nil {
		d.Doubt = newFault(at.String(), code, format, args...)
	}
}

// Want fails because v has the wrong type. what describes the wanted type, as in "a
// string".
func (d *Decoder) Want(v Value, what string) {
	d.Fail(v, "invalid_type", "%s is %s, want %s", v, v.Kind(), what)
}

// Missing fails because a required member is missing.
func (d *Decoder) Missing(at Place) {
	d.Fail(at, "missing_required_parameter", "%s is missing", at)
}

// IsText reports whether v is a string, and fails if not.
func (d *Decoder) IsText(v Value) bool {
	if v.Raw[0] != '"' {
		d.Want(v, "a string")
		return false
	}
	return true
}

// Text reads a string. If v is not a string, it fails and returns "".
func (d *Decoder) Text(v Value) string {
	if !d.IsText(v) {
		return ""
	}
	raw := v.Raw[1 : len(v.Raw)-1]
	return d.Unescaped(raw, bytes.IndexByte(raw, '\\') >= 0)
}

// Again reads a string as text does. last is a string that v is likely to equal, such as the
// field's value in the previous request; if v equals last, again returns last itself and allocates
// nothing.
func (d *Decoder) Again(v Value, last string) string {
	if raw := v.Raw; raw[0] == '"' && string(raw[1:len(raw)-1]) == last && bytes.IndexByte(raw, '\\') < 0 {
		return last
	}
	return d.Text(v)
}

// Unescaped returns the text of a JSON string. raw is the string without its quotes; escaped
// reports whether raw contains a backslash. Invalid UTF-8 becomes U+FFFD.
func (d *Decoder) Unescaped(raw []byte, escaped bool) string {
	if !escaped && utf8.Valid(raw) {
		return string(raw)
	}
	d.Buf = appendUnescaped(d.Buf[:0], raw)
	return string(d.Buf)
}

// Label reads a string as again does. A server refuses a string of more than MaxName bytes.
func (d *Decoder) Label(v Value, last string) string {
	s := d.Again(v, last)
	if len(s) > MaxName && !d.Lenient {
		d.Fail(v, "invalid_value", "%s has %d bytes, want at most %d: give a hash of it", v, len(s), MaxName)
		return ""
	}
	return s
}

// Flag reads a boolean. If v is none, it fails and returns false.
func (d *Decoder) Flag(v Value) bool {
	if v.Raw[0] != 't' && v.Raw[0] != 'f' {
		d.Want(v, "true or false")
	}
	return v.Raw[0] == 't'
}

// Integer reads a number without a fraction, in any notation, from lo to hi. If v is not one, it
// fails and returns 0.
func (d *Decoder) Integer(v Value, lo, hi int64) int64 {
	n, _ := d.Whole(v, lo, hi)
	return n
}

// Whole reads a number as integer does, and also reports whether v is a valid one. For a proxy it
// accepts numbers above hi up to the largest int32: the worker checks the limit.
func (d *Decoder) Whole(v Value, lo, hi int64) (n int64, ok bool) {
	if !v.isNumber() {
		d.Want(v, "an integer")
		return 0, false
	}
	most := hi
	if d.Lenient {
		most = max(hi, math.MaxInt32)
	}
	if n, ok = Whole(v.Raw); !ok || n < lo || n > most {
		d.Fail(v, "invalid_value", "%s is %s, want an integer from %d to %d", v, short(v.Raw), lo, hi)
		return 0, false
	}
	return n, true
}

// Whole returns the integer that raw denotes, as 5, 5.0 or 5e0; ok is false if raw denotes none. A
// number with a point or an exponent may be at most 2^53 in magnitude, because float64 is exact
// only up to there.
func Whole(raw []byte) (int64, bool) {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// Number reads a number from lo to hi, rounded to 32 bits as the sampler uses it. If v is not one,
// it fails and returns 0.
func (d *Decoder) Number(v Value, lo, hi float64) float32 {
	if !v.isNumber() {
		d.Want(v, "a number")
		return 0
	}
	f, err := strconv.ParseFloat(string(v.Raw), 64)
	if err != nil || !(f >= lo && f <= hi) {
		d.Fail(v, "invalid_value", "%s is %s, want a number from %v to %v", v, short(v.Raw), lo, hi)
		return 0
	}
	return float32(f)
}

// Above reads a number above 0 and at most hi. It serves fields for which the sampler takes 0 as
// "off", which is the opposite of what a request with 0 means. A positive number that rounds to 0
// becomes the smallest positive float32.
func (d *Decoder) Above(v Value, hi float64) float32 {
	f := d.Number(v, 0, hi)
	if f == 0 {
		if f, err := strconv.ParseFloat(string(v.Raw), 64); err == nil && f > 0 {
			return math.SmallestNonzeroFloat32
		}
		d.Fail(v, "invalid_value", "%s is %s, want a number above 0, up to %v", v, short(v.Raw), hi)
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

// OneOf reads a string that must be one of names.
func (d *Decoder) OneOf(v Value, names ...string) string {
	s, ok := d.Among(v, names)
	if !ok && v.Raw[0] == '"' {
		d.Fail(v, "invalid_value", "%s is %q, want one of %s", v, Clip(s), fmt.Sprintf("%q", names))
	}
	return s
}

// Among reads a string as text does, and also reports whether it is one of names.
func (d *Decoder) Among(v Value, names []string) (s string, ok bool) {
	for _, name := range names {
		if len(v.Raw) == len(name)+2 && v.Raw[0] == '"' && string(v.Raw[1:len(name)+1]) == name {
			return name, true
		}
	}
	s = d.Text(v)
	return s, slices.Contains(names, s)
}

// List iterates over the elements of the array v with their indices. If v is not an array, it
// fails, for which what describes the wanted type, and yields nothing.
func (d *Decoder) List(v Value, what string) iter.Seq2[int, Value] {
	return func(yield func(int, Value) bool) {
		if v.Raw[0] != '[' {
			d.Want(v, what)
			return
		}
		s := Scanner{B: v.Raw, At: 1}
		for i := 0; s.More(i, ']'); i++ {
			raw, _ := s.Skip()
			if s.Broken || !yield(i, Value{raw, v.Top}) {
				break
			}
		}
		d.Broken = d.Broken || s.Broken
	}
}

// Object returns the members of the object v that are not null, in the order of their first
// occurrence; of two members with the same name the last one counts. The result is the top of the
// stack d.Kept and valid until the caller shrinks the stack. If v is not an object, object
// fails, for which what describes the wanted type, and returns nil.
func (d *Decoder) Object(v Value, what string) []Field {
	if v.Raw[0] != '{' {
		d.Want(v, what)
		return nil
	}
	s := Scanner{B: v.Raw}
	return d.Members(&s, v, "", nil)
}

// Fields reads the members of the object v: it calls read[name] for the member with that name, and
// unknown for members not in read. prefix is the path of the object, as for unknown.
func (d *Decoder) Fields(v Value, prefix string, read map[string]func(Value)) {
	for _, f := range d.Object(v, "an object") {
		if set := read[string(f.Name)]; set != nil {
			set(f.Value)
		} else {
			d.Unknown(prefix, f)
		}
	}
}

// mapFrom is the number of members up to which duplicates are searched linearly, not by a map.
const mapFrom = 32

// Members does what object does for the object that begins at s.At, and moves s past the object's
// end. v is the object for error messages. The member named long, which for a proxy is the prompt
// or the messages, is not returned: read gets the scanner at its value and returns the scanner
// after it, so that the long text is scanned only once. long may be "".
func (d *Decoder) Members(s *Scanner, v Value, long string, read func(Scanner) Scanner) []Field {
	from := len(d.Kept)
	var seen map[string]int
	s.At++
	for i := 0; ; i++ {
		name, ok := s.member(i)
		if !ok {
			break
		}
		if long != "" && string(name) == long {
			*s = read(*s)
			continue
		}
		raw, _ := s.Skip()
		if s.Broken {
			break
		}
		n := len(d.Kept)
		if seen == nil && n-from == mapFrom {
			seen = make(map[string]int, 2*mapFrom)
			for j, f := range d.Kept[from:] {
				seen[string(f.Name)] = from + j
			}
		}
		at, twice := seen[string(name)]
		if seen == nil {
			at = from + slices.IndexFunc(d.Kept[from:], func(f Field) bool { return string(f.Name) == string(name) })
			twice = at >= from
		}
		switch {
		case twice:
			d.Kept[at].Raw = raw
		case n-from == MaxFields:
			d.Fail(v, "invalid_value", "%s has over %d fields", v.nameOr("the body"), MaxFields)
			if !d.Lenient {
				return nil
			}
		default:
			if d.Kept = append(d.Kept, Field{name, Value{raw, v.Top}}); seen != nil {
				seen[string(name)] = n
			}
		}
	}
	d.Broken = d.Broken || s.Broken
	given := slices.DeleteFunc(d.Kept[from:], func(f Field) bool { return f.Raw[0] == 'n' })
	d.Kept = d.Kept[:from+len(given)]
	return given
}

// nameOr returns v's path, or whole if v is the entire text.
func (v Value) nameOr(whole string) string {
	if path := v.String(); path != "" {
		return path
	}
	return whole
}

// Texts reads an array of strings. It fails for an array of more strings than most says.
func (d *Decoder) Texts(v Value, most int) []string {
	var out []string
	for _, e := range d.List(v, "an array of strings") {
		if len(out) == most {
			d.Fail(v, "invalid_value", "%s has over %d strings", v, most)
		}
		out = append(out, d.Text(e))
	}
	return out
}

// maxIgnored bounds the ignored fields that an answer names.
const maxIgnored = 32

// Unknown handles the member f, whose name is in no table: it ignores f if the name is harmless or
// the options say so, and refuses f otherwise. prefix is the path of the object that contains f,
// with list elements as "messages[].".
func (d *Decoder) Unknown(prefix string, f Field) {
	if d.Lenient {
		return
	}
	if d.Ignores != nil && d.Ignores(string(f.Name)) {
		d.Ignore(d.Under + prefix + Clip(string(f.Name)))
		return
	}
	d.Fail(f, "unknown_parameter", "Unrecognized request argument supplied: %s", f)
}

// Ignore records an ignored field. Its name is made fit for a header.
func (d *Decoder) Ignore(name string) {
	b := []byte(name)
	for i, c := range b {
		if c <= ' ' || c >= 0x7f || c == ',' {
			b[i] = '?'
		}
	}
	if name = string(b); len(d.Skipped) < maxIgnored && !slices.Contains(d.Skipped, name) {
		d.Skipped = append(d.Skipped, name)
	}
}

// MaxName bounds cache_salt and class, in bytes, because both outlive their request.
const MaxName = 1024

// Objects reads an array of JSON objects without decoding them; nil if v is no array. For a server
// it fails if the array has more objects than most says.
func (d *Decoder) Objects(v Value, most int) []json.RawMessage {
	out := []json.RawMessage{}
	for _, e := range d.List(v, "an array of objects") {
		if len(out) == most && !d.Lenient {
			d.Fail(v, "invalid_value", "%s has over %d objects", v, most)
		} else if e.Raw[0] != '{' {
			d.Want(e, "an object")
		}
		out = append(out, e.Raw)
	}
	if v.Raw[0] != '[' {
		return nil
	}
	return out
}
