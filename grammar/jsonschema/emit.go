package jsonschema

import (
	"unicode/utf8"

	"github.com/coppice-llm/coppice/grammar"
)

// space returns the optional white space after a colon; nil if Compact.
func (b *builder) space() *grammar.Expr {
	if b.cfg.Compact {
		return nil
	}
	return optional(lit(" "))
}

// gap returns the optional white space after a comma or an opening bracket and before a closing
// one: a space, or a line break and indentation unless Inline. It is nil if Compact.
func (b *builder) gap() *grammar.Expr {
	if b.cfg.Compact || b.cfg.Inline {
		return b.space()
	}
	return b.sharedRule("gap", func() *grammar.Expr {
		indent := runes(grammar.Range{Lo: '\t', Hi: '\t'}, grammar.Range{Lo: ' ', Hi: ' '})
		return optional(either(lit(" "), seq(lit("\n"), repeat(indent, 0, 32))))
	})
}

func (b *builder) comma() *grammar.Expr { return seq(lit(","), b.gap()) }

// any returns the expression of any JSON value.
func (b *builder) any() *grammar.Expr {
	return b.sharedRule("any", func() *grammar.Expr {
		return either(lit("null"), lit("true"), lit("false"), b.number(newFlat(), false),
			b.anyString(), b.anyArray(), b.anyObject())
	})
}

func (b *builder) anyArray() *grammar.Expr {
	return b.sharedRule("any array", func() *grammar.Expr {
		return b.elements(nil, b.any(), 0, grammar.Unlimited)
	})
}

func (b *builder) anyObject() *grammar.Expr {
	return b.sharedRule("any object", func() *grammar.Expr {
		pair := b.pair(b.anyString(), b.any())
		return b.braces(seq(pair, repeat(seq(b.comma(), pair), 0, grammar.Unlimited)), true)
	})
}

// emit returns the expression of the values that satisfy f. at is a schema that contributed to
// f, for errors.
func (b *builder) emit(f *flat, at *value) *grammar.Expr {
	if f.fixed {
		return b.fixed(f, at)
	}
	allowed := f.allowed()
	f.checkRefused(allowed)
	if f.about == 0 && allowed == allTypes {
		return b.any()
	}
	var parts []*grammar.Expr
	if allowed&nulls != 0 {
		parts = append(parts, lit("null"))
	}
	if allowed&booleans != 0 {
		parts = append(parts, lit("true"), lit("false"))
	}
	if allowed&integers != 0 {
		e := b.number(f, allowed&fractions == 0)
		b.made(e, at)
		parts = append(parts, e)
	}
	if allowed&texts != 0 {
		parts = append(parts, b.string(f))
	}
	if allowed&arrays != 0 {
		parts = append(parts, b.array(f, at))
	}
	if allowed&objects != 0 {
		parts = append(parts, b.object(f, at))
	}
	return either(parts...)
}

// fixed returns the expression of those enum or const values of f that satisfy f's other
// keywords. at is a schema that contributed to f, for errors.
func (b *builder) fixed(f *flat, at *value) *grammar.Expr {
	var parts []*grammar.Expr
	for _, v := range f.values {
		work := 1
		if v.kind == object {
			work += len(f.required)
		}
		b.spend(work, v)
		if f.admits(v, at) {
			parts = append(parts, b.literal(v))
		}
	}
	return either(parts...)
}

// admits reports whether v, one of f.values, satisfies f's other keywords. It is an error if f
// has a keyword for v's type that is not evaluated on values, such as pattern. at is a schema
// that contributed to f, for errors.
func (f *flat) admits(v, at *value) bool {
	is := map[kind]types{null: nulls, boolean: booleans, text: texts, array: arrays, object: objects}[v.kind]
	if v.kind == number {
		r, ok := rational(v.text)
		if !ok {
			tooMuch(v, "", "a number of over %d digits", maxDigits)
		}
		is = fractions
		if r.IsInt() {
			is = integers
		}
		if f.types&is == 0 || !f.least.within(r, 1) || !f.most.within(r, -1) ||
			f.places >= 0 && len(fractionDigits(r)) > f.places {
			return false
		}
	}
	if f.types&is == 0 {
		return false
	}
	f.checkRefused(is)
	for _, c := range []struct {
		types   types
		keyword string
		has     bool
	}{
		{texts, "pattern", len(f.patterns) > 0},
		{texts, "format", len(f.formats) > 0},
		{arrays, "items", len(f.arrays) > 0},
		{objects, "properties", len(f.objects) > 0},
	} {
		if c.types == is && c.has {
			unsupported(at, c.keyword, "together with enum or const, for the value %.50s", literalText(v))
		}
	}
	switch v.kind {
	case text:
		return inRange(utf8.RuneCountInString(v.text), f.minLength, f.maxLength)
	case array:
		return inRange(len(v.members), f.minItems, f.maxItems)
	case object:
		for _, name := range f.required {
			if v.get(name) == nil {
				return false
			}
		}
		return inRange(len(v.members), f.minProperties, f.maxProperties)
	}
	return true
}

// inRange reports whether least <= n <= most; most may be Unlimited.
func inRange(n, least, most int) bool {
	return n >= least && (most == grammar.Unlimited || n <= most)
}

// literal returns the expression of the value v, with optional white space between tokens. It
// makes one expression for each v, because alternatives may share v.
func (b *builder) literal(v *value) *grammar.Expr {
	e := b.literals[v]
	if e == nil {
		e = b.newLiteral(v)
		b.literals[v] = e
	}
	return e
}

func (b *builder) newLiteral(v *value) *grammar.Expr {
	if len(v.members) == 0 {
		return lit(literalText(v))
	}
	open, end := lit("["), lit("]")
	if v.kind == object {
		open, end = lit("{"), lit("}")
	}
	parts := []*grammar.Expr{open, b.gap()}
	for i, m := range v.members {
		if i > 0 {
			parts = append(parts, b.comma())
		}
		e := b.literal(m)
		if v.kind == object {
			e = b.pair(lit(quote(v.names[i])), e)
		}
		parts = append(parts, e)
	}
	return seq(append(parts, b.gap(), end)...)
}

// literalText returns v as JSON if v has no members, and the name of its kind otherwise.
func literalText(v *value) string {
	switch {
	case v.kind == boolean && v.yes:
		return "true"
	case v.kind == boolean:
		return "false"
	case v.kind == number:
		return v.text
	case v.kind == text:
		return quote(v.text)
	case v.kind == null:
		return "null"
	case len(v.members) > 0:
		return v.kind.String()
	case v.kind == array:
		return "[]"
	}
	return "{}"
}
