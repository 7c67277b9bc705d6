package jsonschema

import "github.com/coppice-llm/coppice/grammar"

func (b *builder) pair(name, e *grammar.Expr) *grammar.Expr {
	return seq(name, lit(":"), b.space(), e)
}

// braces is an object of members; none of them, too, if it may be empty.
func (b *builder) braces(members *grammar.Expr, mayBeEmpty bool) *grammar.Expr {
	inner := seq(members, b.gap())
	if mayBeEmpty {
		inner = optional(inner)
	}
	return seq(lit("{"), b.gap(), inner, lit("}"))
}

// property is one that an object may or must have: its name with what may follow.
type property struct {
	expr     *grammar.Expr
	required bool
}

// object returns the expression of f's objects: what is declared, in its order,
// then what else is required, then others.
func (b *builder) object(f *flat, at *value) (*grammar.Expr, error) {
	if len(f.objects) == 0 && len(f.required) == 0 && f.minProperties == 0 && f.maxProperties == grammar.Unlimited {
		return b.anyObject(), nil
	}
	names, declared, err := b.names(f, at)
	if err != nil {
		return nil, err
	}
	must := make(map[string]bool)
	for _, name := range f.required {
		must[name] = true
	}
	properties := make([]property, len(names))
	for i, name := range names {
		e, err := b.inside(f.schemasOf(name))
		if err != nil {
			return nil, err
		}
		properties[i] = property{b.pair(lit(quote(name)), e), must[name]}
	}
	extra, err := b.extra(f, names, declared, at)
	if err != nil {
		return nil, err
	}
	return b.members(f, properties, extra, at)
}

// names returns the properties that f names, and how many of them by properties.
func (b *builder) names(f *flat, at *value) (names []string, declared int, err error) {
	seen := make(map[string]bool)
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	for _, l := range f.objects {
		if l.patterns != nil && (len(f.objects) > 1 || l.declared != nil || len(f.required) > 0 || len(l.patterns.members) > 1) {
			return nil, 0, unsupported(l.patterns.parent, "patternProperties",
				"more than one pattern, or properties or required beside it")
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
		return nil, 0, tooMuch(at, "properties", "%d, over MaxMembers, %d", len(names), b.cfg.MaxMembers)
	}
	if n := longest(names); n > 1024 {
		return nil, 0, tooMuch(at, "properties", "a name of %d characters, over 1024", n)
	}
	return names, declared, b.spend(len(names)*(1+len(f.objects)), at)
}

// schemasOf returns what f says of the property called name, doubles included.
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

// extra returns the expression of a property that is none of names.
func (b *builder) extra(f *flat, names []string, declared int, at *value) (*grammar.Expr, error) {
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
		return nothing, nil
	}
	total := 0
	for _, name := range names {
		total += len(name)
	}
	if err := b.spend(4*total, at); err != nil {
		return nil, err
	}
	e, err := b.inside(schemas)
	if err != nil || e == nothing {
		return nothing, err
	}
	return b.pair(b.notNamed(names), e), nil
}

// patternProperty returns that of a pattern that stands alone. Absent
// additionalProperties are as beside properties.
func (b *builder) patternProperty(l objectLayer) (*grammar.Expr, error) {
	s := l.patterns.parent
	if closed := l.other == nil && !b.cfg.AllowExtra || l.other != nil && l.other.kind == boolean && !l.other.yes; !closed {
		return nil, unsupported(s, "patternProperties", "additionalProperties other than false beside it")
	}
	name := &value{kind: text, text: l.patterns.names[0], parent: s}
	key, err := b.patterned(newFlat(), name, "patternProperties")
	if err != nil {
		return nil, err
	}
	e, err := b.inside(l.patterns.members)
	return b.pair(key, e), err
}

// members puts properties together, and any number of extra ones behind them.
//
// A list of which some optional ones come before the first that is there can't
// know if it needs a comma, so lists are made from the left: those that end at
// the i-th are those that end before it, if there is one, a comma, and the i-th.
// Each property is in that twice at most, and linear it stays.
func (b *builder) members(f *flat, properties []property, extra *grammar.Expr, at *value) (*grammar.Expr, error) {
	required := 0
	for _, p := range properties {
		if p.required {
			required++
		}
	}
	if len(properties) == 0 {
		return b.extraOnly(f, extra), nil
	}
	most := f.maxProperties
	if most != grammar.Unlimited && most < required {
		return nothing, nil
	}
	if most != grammar.Unlimited && (len(properties) > most || extra != nothing) {
		return nil, unsupported(at, "maxProperties", "%d, and there may be more; leave it out", most)
	}
	if f.minProperties > max(1, required) {
		return nil, unsupported(at, "minProperties", "%d, and only %d are required; require more", f.minProperties, required)
	}
	list := nothing
	before := false // list has a required one
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
			// Twice: it must be small.
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
	return b.braces(list, required == 0 && f.minProperties == 0), nil
}

// extraOnly is objects of which no property has a name that the schema says.
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
