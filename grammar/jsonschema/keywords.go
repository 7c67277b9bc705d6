package jsonschema

import (
	"math/big"
	"slices"

	"github.com/coppice-llm/coppice/grammar"
)

// keyword is a keyword that affects which values are valid. All others are annotations.
type keyword struct {
	about types // types that the keyword applies to; 0 if it applies to all
	meet  meeting
}

// meeting intersects f with the keyword called name of the schema s; arg is the keyword's argument.
type meeting func(f *flat, s, arg *value, name string)

// keywords holds the known keywords. Those without meet, or without one in of, are
// handled by apply, meetObject or meetArray.
var keywords = map[string]keyword{
	"$ref": {}, "allOf": {}, "anyOf": {}, "oneOf": {},

	"type":  {0, meetType},
	"enum":  {0, of(array, func(f *flat, _, arg *value, _ string) { f.meetValues(arg.members) })},
	"const": {0, func(f *flat, _, arg *value, _ string) { f.meetValues([]*value{arg}) }},

	"minimum":          {numbers, meetBound(1, "exclusiveMinimum")},
	"maximum":          {numbers, meetBound(-1, "exclusiveMaximum")},
	"exclusiveMinimum": {numbers, meetBound(1, "")},
	"exclusiveMaximum": {numbers, meetBound(-1, "")},
	"multipleOf":       {numbers, meetMultipleOf},

	"minLength": {texts, func(f *flat, s, arg *value, name string) { atLeast(&f.minLength, s, arg, name) }},
	"maxLength": {texts, func(f *flat, s, arg *value, name string) { atMost(&f.maxLength, s, arg, name) }},
	"pattern":   {texts, of(text, meetPattern)},
	"format":    {texts, of(text, meetFormat)},

	"properties":           {objects, of(object, nil)},
	"additionalProperties": {objects, nil},
	"patternProperties":    {objects, of(object, nil)},
	"required":             {objects, meetRequired},
	"minProperties":        {objects, func(f *flat, s, arg *value, name string) { atLeast(&f.minProperties, s, arg, name) }},
	"maxProperties":        {objects, func(f *flat, s, arg *value, name string) { atMost(&f.maxProperties, s, arg, name) }},

	"items":           {arrays, nil},
	"prefixItems":     {arrays, of(array, nil)},
	"additionalItems": {0, nil},
	"minItems":        {arrays, func(f *flat, s, arg *value, name string) { atLeast(&f.minItems, s, arg, name) }},
	"maxItems":        {arrays, func(f *flat, s, arg *value, name string) { atMost(&f.maxItems, s, arg, name) }},

	"uniqueItems":           {arrays, of(boolean, refuse(arrays, isFalse))},
	"contains":              {arrays, refuse(arrays, nil)},
	"unevaluatedItems":      {arrays, refuse(arrays, isAny)},
	"unevaluatedProperties": {objects, refuse(objects, isAny)},
	"propertyNames":         {objects, refuse(objects, isAny)},
	"dependentRequired":     {objects, refuse(objects, isEmpty)},
	"dependentSchemas":      {objects, refuse(objects, isEmpty)},
	"dependencies":          {objects, refuse(objects, isEmpty)},
	"not":                   {0, refuse(allTypes, nil)},
	"if":                    {0, refuse(allTypes, hasNoBranch)},
	"$dynamicRef":           {0, refuse(allTypes, nil)},
	"$recursiveRef":         {0, refuse(allTypes, nil)},
}

// of returns a meeting that refuses arguments that are not of kind k, and calls meet, unless nil,
// with the others.
func of(k kind, meet meeting) meeting {
	return func(f *flat, s, arg *value, name string) {
		if arg.kind != k {
			wrong(s, name, "must be of type %v", k)
		}
		if meet != nil {
			meet(f, s, arg, name)
		}
	}
}

// refuse returns a meeting that refuses a keyword for the types of about. It ignores the
// keyword if harmless reports that the keyword restricts nothing; harmless may be nil.
func refuse(about types, harmless func(s, arg *value) bool) meeting {
	return func(f *flat, s, arg *value, name string) {
		if harmless == nil || !harmless(s, arg) {
			f.refuse(about, refusal{s, name, "it has no grammar here"})
		}
	}
}

func isFalse(_, arg *value) bool { return !arg.yes }

func isEmpty(_, arg *value) bool { return arg.kind == object && len(arg.members) == 0 }

// isAny reports whether arg is the schema true or {}.
func isAny(s, arg *value) bool { return arg.kind == boolean && arg.yes || isEmpty(s, arg) }

// hasNoBranch reports whether an if has neither then nor else.
func hasNoBranch(s, _ *value) bool { return s.get("then") == nil && s.get("else") == nil }

func meetType(f *flat, s, arg *value, name string) {
	names := []*value{arg}
	if arg.kind == array && len(arg.members) > 0 {
		names = arg.members
	}
	var set types
	for _, n := range names {
		t, ok := typeNames[n.text]
		if n.kind != text || !ok {
			wrong(s, name, "must be null, boolean, integer, number, string, array or object, or an array of such names")
		}
		set |= t
	}
	f.types &= set
	f.typed = true
}

// meetValues restricts f to values, those of an enum or const, and to the values that it was
// restricted to before.
func (f *flat) meetValues(values []*value) {
	if !f.fixed {
		f.values, f.fixed = values, true
		return
	}
	known := make(map[string]bool, len(values))
	for _, v := range values {
		known[v.key()] = true
	}
	var both []*value
	for _, v := range f.values {
		if known[v.key()] {
			both = append(both, v)
		}
	}
	f.values = both
}

// weight returns the work of f.meet(s): the number of entries in s's keywords, and of the values
// of f that an enum or const of s is compared with. The work is charged for each call of meet,
// because a schema is applied as often as others refer to it.
func (f *flat) weight(s *value) int {
	n := 0
	for _, name := range []string{"required", "type"} {
		if v := s.get(name); v != nil {
			n += len(v.members)
		}
	}
	values, fixed := len(f.values), f.fixed
	for _, name := range []string{"enum", "const"} {
		v := s.get(name)
		if v == nil {
			continue
		}
		count := 1
		if name == "enum" {
			count = len(v.members)
		}
		if fixed {
			n += values + count
		} else {
			values, fixed = count, true
		}
	}
	return n
}

// count returns arg, the argument of minLength or a similar keyword, as an integer. For 2^24 and
// more it returns grammar.Unlimited, so a maximum of that size means no maximum: no model writes
// that much. s and name are the schema and the keyword, for errors.
func count(s, arg *value, name string) int {
	if arg.kind == number {
		if r, ok := rational(arg.text); ok && r.IsInt() && r.Sign() >= 0 {
			if r.Cmp(big.NewRat(1<<24, 1)) >= 0 {
				return grammar.Unlimited
			}
			return int(r.Num().Int64())
		}
	}
	wrong(s, name, "must be an integer of at least 0")
	return 0
}

// atLeast raises *at to arg, the argument of a keyword such as minLength. It fails if arg is 2^24
// or more.
func atLeast(at *int, s, arg *value, name string) {
	n := count(s, arg, name)
	if n == grammar.Unlimited {
		tooMuch(s, name, "2^24 or more")
	}
	*at = max(*at, n)
}

// atMost lowers *at to arg, the argument of a keyword such as maxLength.
func atMost(at *int, s, arg *value, name string) {
	n := count(s, arg, name)
	if n != grammar.Unlimited && (*at == grammar.Unlimited || n < *at) {
		*at = n
	}
}

func meetPattern(f *flat, s, arg *value, name string) {
	if len(f.patterns) < 2 && (len(f.patterns) == 0 || f.patterns[0].text != arg.text) { // string refuses two
		f.patterns = append(f.patterns, arg)
	}
}

// meetFormat adds the format arg to f. It ignores a format that is not enforced.
func meetFormat(f *flat, s, arg *value, name string) {
	known := slices.ContainsFunc(f.formats, func(p *value) bool { return p.text == arg.text })
	if _, ok := formats[arg.text]; ok && !known {
		f.formats = append(f.formats, arg)
	}
}

func meetRequired(f *flat, s, arg *value, name string) {
	if arg.kind == boolean { // draft-03 and -04 on a property; without effect in later drafts
		return
	}
	if arg.kind != array || slices.ContainsFunc(arg.members, func(n *value) bool { return n.kind != text }) {
		wrong(s, name, "must be an array of strings")
	}
	for _, n := range arg.members {
		f.required = append(f.required, n.text)
	}
}
