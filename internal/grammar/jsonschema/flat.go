package jsonschema

import (
	"slices"

	"github.com/coppice-llm/coppice/grammar"
)

// types is a set of JSON types. A number is an integer or a fraction, so that
// "integer" and "number" meet in what both allow.
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

// flat is what schemas that hold together say of one value: their keywords, met.
type flat struct {
	types  types
	typed  bool  // a type was named
	about  types // what the keywords are about
	values []*value
	fixed  bool // values are all that is allowed

	least, most bound // of a number
	places      int   // behind its point; -1 if multipleOf is silent

	minLength, maxLength int
	patterns, formats    []*value

	objects                      []objectLayer
	required                     []string
	minProperties, maxProperties int
	arrays                       []arrayLayer
	minItems, maxItems           int

	refused [8]refusal // by bit of the type that the keyword is about
}

// objectLayer is what one schema says of properties: its other is for those
// that this schema does not declare, whatever others do.
type objectLayer struct {
	declared *value // nil if it declares none
	patterns *value
	other    *value // nil if absent
}

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

// clone returns a copy whose lists grow apart from f's.
func (f *flat) clone() *flat {
	c := *f
	c.values = slices.Clip(f.values)
	c.patterns, c.formats = slices.Clip(f.patterns), slices.Clip(f.formats)
	c.objects, c.arrays = slices.Clip(f.objects), slices.Clip(f.arrays)
	c.required = slices.Clip(f.required)
	return &c
}

// allowed is the set of types that f's values may have.
func (f *flat) allowed() types {
	if !f.typed && f.about != 0 && !f.fixed {
		return f.about
	}
	return f.types
}

// refusal is of a keyword that no grammar is made of. It becomes an error only if it is told,
// for an error has the place written out.
type refusal struct {
	at           *value // nil if there is none
	keyword, msg string
}

func (f *flat) refuse(about types, r refusal) {
	for i := range f.refused {
		if about&(1<<i) != 0 && f.refused[i].at == nil {
			f.refused[i] = r
		}
	}
}

// refusal is of a keyword that is about one of set.
func (f *flat) refusal(set types) error {
	for i, r := range f.refused {
		if set&(1<<i) != 0 && r.at != nil {
			return unsupported(r.at, r.keyword, "%s", r.msg)
		}
	}
	return nil
}

// apply makes every alternative meet s as well; anyOf and oneOf make more of them.
func (b *builder) apply(alternatives []*flat, s *value) ([]*flat, error) {
	if err := b.spend(1+len(alternatives)*(1+len(s.names)), s); err != nil {
		return nil, err
	}
	if s.kind == boolean {
		if s.yes {
			return alternatives, nil
		}
		return nil, nil
	}
	if s.kind != object {
		return nil, wrong(s, "", "a schema is an object or a boolean, this is of type %v", s.kind)
	}
	if b.active[s] {
		return nil, wrong(s, "$ref", "leads back to the same place, so that it says nothing")
	}
	b.active[s] = true
	defer delete(b.active, s)
	if s.get("$ref") != nil {
		target, err := b.target(s)
		if err != nil {
			return nil, err
		}
		if alternatives, err = b.apply(alternatives, target); err != nil {
			return nil, err
		}
	}
	for _, f := range alternatives {
		if err := b.spend(f.weight(s), s); err != nil {
			return nil, err
		}
		if err := f.meet(s); err != nil {
			return nil, err
		}
	}
	return b.applyOthers(alternatives, s)
}

// applyOthers does so for the schemas that s has beside its own keywords.
func (b *builder) applyOthers(alternatives []*flat, s *value) ([]*flat, error) {
	if s.get("allOf") != nil {
		parts, err := list(s, "allOf")
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			if alternatives, err = b.apply(alternatives, p); err != nil {
				return nil, err
			}
		}
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if s.get(keyword) == nil {
			continue
		}
		branches, err := list(s, keyword)
		if err != nil {
			return nil, err
		}
		var all []*flat
		for _, branch := range branches {
			clones := make([]*flat, len(alternatives))
			for i, f := range alternatives {
				if err := b.spend((len(f.objects)+len(f.arrays)+len(f.required))/16, s); err != nil {
					return nil, err
				}
				clones[i] = f.clone()
			}
			if clones, err = b.apply(clones, branch); err != nil {
				return nil, err
			}
			if all = append(all, clones...); len(all) > b.cfg.MaxAlternatives {
				return nil, tooMuch(s, keyword, "makes over MaxAlternatives, %d, alternatives", b.cfg.MaxAlternatives)
			}
		}
		alternatives = all
	}
	return alternatives, nil
}

// meet adds s's own keywords to f.
func (f *flat) meet(s *value) error {
	for i, name := range s.names {
		k, ok := keywords[name]
		if !ok {
			continue
		}
		f.about |= k.about
		if k.meet == nil {
			continue
		}
		if err := k.meet(f, s, s.members[i], name); err != nil {
			return err
		}
	}
	if err := f.meetObject(s); err != nil {
		return err
	}
	return f.meetArray(s)
}

func (f *flat) meetObject(s *value) error {
	l := objectLayer{declared: s.get("properties"), patterns: s.get("patternProperties"), other: s.get("additionalProperties")}
	if l.declared != nil && l.declared.kind != object {
		return wrong(s, "properties", "must be an object")
	}
	if l.patterns != nil && l.patterns.kind != object {
		return wrong(s, "patternProperties", "must be an object")
	}
	if l.patterns != nil && len(l.patterns.members) == 0 {
		l.patterns = nil
	}
	if l != (objectLayer{}) {
		f.objects = append(f.objects, l)
	}
	return nil
}

// meetArray takes prefixItems and items, or draft-07's array of items and
// additionalItems.
func (f *flat) meetArray(s *value) error {
	first, rest := s.get("prefixItems"), s.get("items")
	if first == nil && rest != nil && rest.kind == array {
		first, rest = rest, s.get("additionalItems")
	}
	if first != nil && first.kind != array {
		return wrong(s, "prefixItems", "must be an array of schemas")
	}
	if first == nil && rest == nil {
		return nil
	}
	l := arrayLayer{rest: rest}
	if first != nil {
		l.first = first.members
	}
	f.arrays = append(f.arrays, l)
	return nil
}
