package jsonschema

import (
	"math/big"

	"github.com/coppice-llm/coppice/grammar"
)

// keyword is a keyword that affects which values are valid. All others are annotations.
type keyword struct {
	about types // types that it applies to; 0 if to all
	meet  func(f *flat, s, arg *value, name string) error
}

// keywords holds the known keywords. Those without meet are handled by apply, meetObject or
// meetArray.
var keywords = map[string]keyword{
	"$ref": {}, "allOf": {}, "anyOf": {}, "oneOf": {},

	"type":  {0, meetType},
	"enum":  {0, meetEnum},
	"const": {0, meetConst},

	"minimum":          {numbers, meetMinimum},
	"maximum":          {numbers, meetMaximum},
	"exclusiveMinimum": {numbers, meetExclusiveMinimum},
	"exclusiveMaximum": {numbers, meetExclusiveMaximum},
	"multipleOf":       {numbers, meetMultipleOf},

	"minLength": {texts, func(f *flat, s, arg *value, name string) error { return atLeast(&f.minLength, s, arg, name) }},
	"maxLength": {texts, func(f *flat, s, arg *value, name string) error { return atMost(&f.maxLength, s, arg, name) }},
	"pattern":   {texts, meetPattern},
	"format":    {texts, meetFormat},

	"properties":           {objects, nil},
	"additionalProperties": {objects, nil},
	"patternProperties":    {objects, nil},
	"required":             {objects, meetRequired},
	"minProperties":        {objects, func(f *flat, s, arg *value, name string) error { return atLeast(&f.minProperties, s, arg, name) }},
	"maxProperties":        {objects, func(f *flat, s, arg *value, name string) error { return atMost(&f.maxProperties, s, arg, name) }},

	"items":           {arrays, nil},
	"prefixItems":     {arrays, nil},
	"additionalItems": {0, nil},
	"minItems":        {arrays, func(f *flat, s, arg *value, name string) error { return atLeast(&f.minItems, s, arg, name) }},
	"maxItems":        {arrays, func(f *flat, s, arg *value, name string) error { return atMost(&f.maxItems, s, arg, name) }},

	"uniqueItems":           {arrays, refuseIfTrue(arrays)},
	"contains":              {arrays, refuse(arrays)},
	"unevaluatedItems":      {arrays, refuseUnlessTrue(arrays)},
	"unevaluatedProperties": {objects, refuseUnlessTrue(objects)},
	"propertyNames":         {objects, refuseUnlessTrue(objects)},
	"dependentRequired":     {objects, refuseUnlessEmpty(objects)},
	"dependentSchemas":      {objects, refuseUnlessEmpty(objects)},
	"dependencies":          {objects, refuseUnlessEmpty(objects)},
	"not":                   {0, refuse(allTypes)},
	"if":                    {0, meetIf},
	"$dynamicRef":           {0, refuse(allTypes)},
	"$recursiveRef":         {0, refuse(allTypes)},
}

// refuse returns a meet function that refuses the keyword for the types of about.
func refuse(about types) func(*flat, *value, *value, string) error {
	return func(f *flat, s, _ *value, name string) error {
		f.refuse(about, refusal{s, name, "no grammar is made of it"})
		return nil
	}
}

func refuseIfTrue(about types) func(*flat, *value, *value, string) error {
	return func(f *flat, s, arg *value, name string) error {
		if arg.kind != boolean {
			return wrong(s, name, "must be a boolean")
		}
		if arg.yes {
			return refuse(about)(f, s, arg, name)
		}
		return nil
	}
}

// refuseUnlessTrue accepts only the schemas true and {}, which restrict nothing.
func refuseUnlessTrue(about types) func(*flat, *value, *value, string) error {
	return func(f *flat, s, arg *value, name string) error {
		if arg.kind == boolean && arg.yes || arg.kind == object && len(arg.members) == 0 {
			return nil
		}
		return refuse(about)(f, s, arg, name)
	}
}

func refuseUnlessEmpty(about types) func(*flat, *value, *value, string) error {
	return func(f *flat, s, arg *value, name string) error {
		if arg.kind == object && len(arg.members) == 0 {
			return nil
		}
		return refuse(about)(f, s, arg, name)
	}
}

// meetIf ignores an if without then and else, which has no effect, and refuses others.
func meetIf(f *flat, s, arg *value, name string) error {
	if s.get("then") == nil && s.get("else") == nil {
		return nil
	}
	return refuse(allTypes)(f, s, arg, name)
}

func meetType(f *flat, s, arg *value, name string) error {
	names := []*value{arg}
	if arg.kind == array && len(arg.members) > 0 {
		names = arg.members
	}
	var set types
	for _, n := range names {
		t, ok := typeNames[n.text]
		if n.kind != text || !ok {
			return wrong(s, name, "must be null, boolean, integer, number, string, array or object, or an array of these")
		}
		set |= t
	}
	f.types &= set
	f.typed = true
	return nil
}

func meetEnum(f *flat, s, arg *value, name string) error {
	if arg.kind != array {
		return wrong(s, name, "must be an array")
	}
	return f.meetValues(arg.members)
}

func meetConst(f *flat, s, arg *value, name string) error {
	return f.meetValues([]*value{arg})
}

// meetValues intersects f's values with those of an enum or const.
func (f *flat) meetValues(values []*value) error {
	if !f.fixed {
		f.values, f.fixed = values, true
		return nil
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
	return nil
}

// weight returns the work of f.meet(s): the number of entries in s's keywords, and of values of
// f that an enum or const is compared with. It is charged each time, because a schema is met as
// often as others refer to it.
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

// count returns the argument of minLength and similar keywords. From 2^24 on it returns
// grammar.Unlimited, so a maximum of that size means no maximum: no model writes that much.
func count(s, arg *value, name string) (int, error) {
	if arg.kind == number {
		if r, ok := rational(arg.text); ok && r.IsInt() && r.Sign() >= 0 {
			if r.Cmp(big.NewRat(1<<24, 1)) >= 0 {
				return grammar.Unlimited, nil
			}
			return int(r.Num().Int64()), nil
		}
	}
	return 0, wrong(s, name, "must be an integer from 0")
}

// atLeast raises *at to the argument of a keyword such as minLength.
func atLeast(at *int, s, arg *value, name string) error {
	n, err := count(s, arg, name)
	if err != nil {
		return err
	}
	if n == grammar.Unlimited {
		return tooMuch(s, name, "2^24 or more")
	}
	*at = max(*at, n)
	return nil
}

// atMost lowers *at to the argument of a keyword such as maxLength.
func atMost(at *int, s, arg *value, name string) error {
	n, err := count(s, arg, name)
	if err != nil || n == grammar.Unlimited {
		return err
	}
	if *at == grammar.Unlimited || n < *at {
		*at = n
	}
	return nil
}

func meetPattern(f *flat, s, arg *value, name string) error {
	if arg.kind != text {
		return wrong(s, name, "must be a string")
	}
	if len(f.patterns) < 2 && (len(f.patterns) == 0 || f.patterns[0].text != arg.text) { // string refuses two
		f.patterns = append(f.patterns, arg)
	}
	return nil
}

// meetFormat adds a format. Formats that are not enforced are annotations and ignored.
func meetFormat(f *flat, s, arg *value, name string) error {
	if arg.kind != text {
		return wrong(s, name, "must be a string")
	}
	if _, ok := formats[arg.text]; !ok {
		return nil
	}
	for _, p := range f.formats {
		if p.text == arg.text {
			return nil
		}
	}
	f.formats = append(f.formats, arg)
	return nil
}

func meetRequired(f *flat, s, arg *value, name string) error {
	if arg.kind == boolean { // draft-03 and -04 on a property; without effect in later drafts
		return nil
	}
	if arg.kind != array {
		return wrong(s, name, "must be an array of strings")
	}
	for _, n := range arg.members {
		if n.kind != text {
			return wrong(s, name, "must be an array of strings")
		}
		f.required = append(f.required, n.text)
	}
	return nil
}
