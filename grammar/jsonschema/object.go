package jsonschema

import "github.com/coppice-llm/coppice/grammar"

func (b *builder) pair(name, e *grammar.Expr) *grammar.Expr {
	return seq(name, lit(":"), b.space(), e)
}

// braces returns the expression of an object with members, or with mayBeEmpty also of the empty
// object.
func (b *builder) braces(members *grammar.Expr, mayBeEmpty bool) *grammar.Expr {
	inner := seq(members, b.gap())
	if mayBeEmpty {
		inner = optional(inner)
	}
	return seq(lit("{"), b.gap(), inner, lit("}"))
}

// property is a property that an object may or must have; expr is its name, colon and value.
type property struct {
	expr     *grammar.Expr
	required bool
}

// object returns the expression of f's objects: declared properties in their order, then required
// properties that are not declared, then any others. at is a schema that contributed to f, for
// errors.
func (b *builder) object(f *flat, at *value) *grammar.Expr {
	if len(f.objects) == 0 && len(f.required) == 0 && f.minProperties == 0 && f.maxProperties == grammar.Unlimited {
		return b.anyObject()
	}
	names, declared := b.names(f, at)
	must := make(map[string]bool)
	for _, name := range f.required {
		must[name] = true
	}
	properties := make([]property, len(names))
	for i, name := range names {
		e := b.inside(f.schemasOf(name))
		properties[i] = property{b.pair(lit(quote(name)), e), must[name]}
	}
	return b.members(f, properties, b.extra(f, names, declared, at), at)
}

// names returns the names of properties in f's keywords properties and required, without
// duplicates. names[:declared] are those in properties, the others are only in required. at is a
// schema that contributed to f, for errors.
func (b *builder) names(f *flat, at *value) (names []string, declared int) {
	seen := make(map[string]bool)
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	for _, l := range f.objects {
		if l.patterns != nil && (len(f.objects) > 1 || l.declared != nil || len(f.required) > 0 || len(l.patterns.members) > 1) {
			unsupported(l.patterns.parent, "patternProperties",
				"more than one pattern, or one together with properties or required")
		}
		if l.declared != nil {
			for _, name := range l.declared.names {
				add(name)
			}
		}
	}
	declared = len(names)
	for _, name := range f.required {
		add(name)
	}
	if len(names) > b.cfg.MaxMembers {
		tooMuch(at, "properties", "%d, over MaxMembers, %d", len(names), b.cfg.MaxMembers)
	}
	if n := longest(names); n > 1024 {
		tooMuch(at, "properties", "a name of %d characters, over 1024", n)
	}
	b.spend(len(names)*(1+len(f.objects)), at)
	return names, declared
}

// schemasOf returns the schemas that f has for the property name, possibly with duplicates.
func (f *flat) schemasOf(name string) []*value {
	var schemas []*value
	for _, l := range f.objects {
		var s *value
		if l.declared != nil {
			s = l.declared.get(name)
		}
		if s == nil {
			s = l.other
		}
		if s != nil {
			schemas = append(schemas, s)
		}
	}
	return schemas
}

// extra returns the expression of a property with a name that is not in names, or nothing if
// there can be none. declared is the number of names that are in properties; at is a schema that
// contributed to f, for errors.
func (b *builder) extra(f *flat, names []string, declared int, at *value) *grammar.Expr {
	if len(f.objects) == 1 && f.objects[0].patterns != nil {
		return b.patternProperty(f.objects[0])
	}
	var schemas []*value
	for _, l := range f.objects {
		if l.other != nil {
			schemas = append(schemas, l.other)
		}
	}
	if schemas == nil && declared > 0 && !b.cfg.AllowExtra {
		return nothing
	}
	total := 0
	for _, name := range names {
		total += len(name)
	}
	b.spend(4*total, at)
	e := b.inside(schemas)
	if e == nothing {
		return nothing
	}
	return b.pair(b.notNamed(names), e)
}

// patternProperty returns the expression of a property for a layer whose only keywords are
// patternProperties with one pattern and, possibly, additionalProperties: false. Absent
// additionalProperties mean false here as well, unless AllowExtra.
func (b *builder) patternProperty(l objectLayer) *grammar.Expr {
	s := l.patterns.parent
	if closed := l.other == nil && !b.cfg.AllowExtra || l.other != nil && l.other.kind == boolean && !l.other.yes; !closed {
		unsupported(s, "patternProperties", "together with additionalProperties other than false")
	}
	name := &value{kind: text, text: l.patterns.names[0], parent: s}
	key := b.patterned(newFlat(), name, "patternProperties")
	return b.pair(key, b.inside(l.patterns.members))
}

// members returns the expression of an object with properties, followed by any number of
// properties that match extra. at is a schema that contributed to f, for errors.
//
// While all properties so far are optional, the next one needs a comma only if an earlier
// property is present. So lists are built from the left, each out of the list of the properties
// before it: for optional a, b, the non-empty lists over {a, b} are (a (, b)?) | b. Each property
// occurs at most twice in such an expression, so its size stays linear.
func (b *builder) members(f *flat, properties []property, extra *grammar.Expr, at *value) *grammar.Expr {
	required := 0
	for _, p := range properties {
		if p.required {
			required++
		}
	}
	if len(properties) == 0 {
		return b.extraOnly(f, extra)
	}
	most := f.maxProperties
	if most != grammar.Unlimited && most < required {
		return nothing
	}
	if most != grammar.Unlimited && (len(properties) > most || extra != nothing) {
		unsupported(at, "maxProperties", "%d, and there may be more; leave it out", most)
	}
	if f.minProperties > max(1, required) {
		unsupported(at, "minProperties", "%d, and only %d are required; require more", f.minProperties, required)
	}
	list := nothing
	before := false // list has a required property, so it is not empty
	for _, p := range properties {
		next := seq(b.comma(), p.expr)
		switch {
		case before && p.required:
			list = seq(list, next)
		case before:
			list = seq(list, optional(next))
		case list == nothing:
			list = p.expr
		case p.required:
			list = seq(optional(seq(list, b.comma())), p.expr)
		default:
			// e occurs twice, so make it a call of a rule.
			e := b.rule(p.expr)
			list = either(seq(list, optional(seq(b.comma(), e))), e)
		}
		before = before || p.required
	}
	if extra != nothing {
		extra = b.rule(extra)
		more := repeat(seq(b.comma(), extra), 0, grammar.Unlimited)
		if before {
			list = seq(list, more)
		} else {
			list = either(seq(list, more), seq(extra, more))
		}
	}
	return b.braces(list, required == 0 && f.minProperties == 0)
}

// extraOnly returns the expression of objects for an f that names no property: all properties
// match extra.
func (b *builder) extraOnly(f *flat, extra *grammar.Expr) *grammar.Expr {
	extra = b.rule(extra)
	most := f.maxProperties
	if most != grammar.Unlimited {
		most--
	}
	if f.maxProperties == 0 {
		extra = nothing
	}
	list := seq(extra, repeat(seq(b.comma(), extra), max(0, f.minProperties-1), most))
	return b.braces(list, f.minProperties == 0)
}
