package jsonschema

import (
	"slices"

	"github.com/coppice-llm/coppice/grammar"
)

// types is a set of JSON types. Numbers are split into integers and fractions, so that the
// intersection of "integer" and "number" is a set of types, too.
type types uint8

const (
	nulls types = 1 << iota
	booleans
	integers
	fractions
	texts
	arrays
	objects

	numbers  = integers | fractions
	allTypes = objects<<1 - 1
)

var typeNames = map[string]types{
	"null": nulls, "boolean": booleans, "integer": integers, "number": numbers,
	"string": texts, "array": arrays, "object": objects,
}

// flat is the conjunction of schemas that all apply to one value: the intersection of their
// keywords.
type flat struct {
	types  types
	typed  bool     // one of the schemas has the keyword type
	about  types    // types that the schemas' keywords apply to
	values []*value // if fixed: the values of enum or const
	fixed  bool     // only the values in the field values are allowed

	least, most bound // bounds of a number
	places      int   // digits after a number's point, from multipleOf; -1 if absent

	minLength, maxLength int
	patterns, formats    []*value

	objects                      []objectLayer
	required                     []string
	minProperties, maxProperties int
	arrays                       []arrayLayer
	minItems, maxItems           int

	refused [8]refusal // by bit of types: the first refused keyword that applies to the type
}

// objectLayer holds one schema's keywords for properties. The field other applies to all
// properties that this schema does not declare, even if another schema declares them.
type objectLayer struct {
	declared *value // properties; nil if absent
	patterns *value // patternProperties; nil if absent
	other    *value // additionalProperties; nil if absent
}

// arrayLayer holds one schema's keywords for elements.
type arrayLayer struct {
	first []*value
	rest  *value // nil if absent
}

func newFlat() *flat {
	return &flat{
		types: allTypes, places: -1, maxLength: grammar.Unlimited,
		maxProperties: grammar.Unlimited, maxItems: grammar.Unlimited,
	}
}

// clone returns a copy of f; appending to its lists does not change f's.
func (f *flat) clone() *flat {
	c := *f
	c.values = slices.Clip(f.values)
	c.patterns, c.formats = slices.Clip(f.patterns), slices.Clip(f.formats)
	c.objects, c.arrays = slices.Clip(f.objects), slices.Clip(f.arrays)
	c.required = slices.Clip(f.required)
	return &c
}

// allowed returns the types that values of f may have. Without type, enum and const these are
// the types that f's keywords apply to.
func (f *flat) allowed() types {
	if !f.typed && f.about != 0 && !f.fixed {
		return f.about
	}
	return f.types
}

// refusal records a keyword that is not supported. It becomes an error only if a type that the
// keyword applies to is allowed. An error for each such keyword would cost too much, because of
// its pointer.
type refusal struct {
	at           *value // the schema; nil if nothing is refused
	keyword, msg string
}

// refuse records r for each type of about for which no refusal is recorded yet.
func (f *flat) refuse(about types, r refusal) {
	for i := range f.refused {
		if about&(1<<i) != 0 && f.refused[i].at == nil {
			f.refused[i] = r
		}
	}
}

// checkRefused ends the translation with an Error if a refused keyword applies to a type of set.
func (f *flat) checkRefused(set types) {
	for i, r := range f.refused {
		if set&(1<<i) != 0 && r.at != nil {
			unsupported(r.at, r.keyword, "%s", r.msg)
		}
	}
}

// apply adds the schema s to every conjunction in alternatives and returns the resulting
// alternatives. An anyOf or oneOf in s with n branches makes n alternatives of each; the schema
// false leaves none.
func (b *builder) apply(alternatives []*flat, s *value) []*flat {
	b.spend(1+len(alternatives)*(1+len(s.names)), s)
	if s.kind == boolean {
		if s.yes {
			return alternatives
		}
		return nil
	}
	if s.kind != object {
		wrong(s, "", "a schema is an object or a boolean, this is of type %v", s.kind)
	}
	if b.active[s] {
		wrong(s, "$ref", "refers to itself, so it restricts nothing")
	}
	b.active[s] = true
	defer delete(b.active, s)
	if s.get("$ref") != nil {
		alternatives = b.apply(alternatives, b.target(s))
	}
	for _, f := range alternatives {
		b.spend(f.weight(s), s)
		f.meet(s)
	}
	return b.applyOthers(alternatives, s)
}

// applyOthers is apply for the schemas in s's allOf, anyOf and oneOf.
func (b *builder) applyOthers(alternatives []*flat, s *value) []*flat {
	if s.get("allOf") != nil {
		for _, p := range list(s, "allOf") {
			alternatives = b.apply(alternatives, p)
		}
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if s.get(keyword) == nil {
			continue
		}
		var all []*flat
		for _, branch := range list(s, keyword) {
			clones := make([]*flat, len(alternatives))
			for i, f := range alternatives {
				b.spend((len(f.objects)+len(f.arrays)+len(f.required))/16, s)
				clones[i] = f.clone()
			}
			if all = append(all, b.apply(clones, branch)...); len(all) > b.cfg.MaxAlternatives {
				tooMuch(s, keyword, "makes over MaxAlternatives, %d, alternatives", b.cfg.MaxAlternatives)
			}
		}
		alternatives = all
	}
	return alternatives
}

// meet intersects f with s's own keywords. Keywords that hold schemas for the same value ($ref,
// allOf, anyOf, oneOf) are left to apply.
func (f *flat) meet(s *value) {
	for i, name := range s.names {
		k, ok := keywords[name]
		if !ok {
			continue
		}
		f.about |= k.about
		if k.meet != nil {
			k.meet(f, s, s.members[i], name)
		}
	}
	f.meetObject(s)
	f.meetArray(s)
}

// meetObject adds s's keywords for properties as a layer. Layers are kept apart because the
// additionalProperties of each schema depends on the properties of that schema.
func (f *flat) meetObject(s *value) {
	l := objectLayer{declared: s.get("properties"), patterns: s.get("patternProperties"), other: s.get("additionalProperties")}
	if l.patterns != nil && len(l.patterns.members) == 0 {
		l.patterns = nil
	}
	if l != (objectLayer{}) {
		f.objects = append(f.objects, l)
	}
}

// meetArray adds s's prefixItems and items as a layer. In draft-07 these are items, as an array,
// and additionalItems.
func (f *flat) meetArray(s *value) {
	first, rest := s.get("prefixItems"), s.get("items")
	if first == nil && rest != nil && rest.kind == array {
		first, rest = rest, s.get("additionalItems")
	}
	if first == nil && rest == nil {
		return
	}
	l := arrayLayer{rest: rest}
	if first != nil {
		l.first = first.members
	}
	f.arrays = append(f.arrays, l)
}
