package jsonschema

import "github.com/coppice-llm/coppice/grammar"

// array returns the expression of f's arrays. at is a schema that contributed to f, for errors.
func (b *builder) array(f *flat, at *value) *grammar.Expr {
	if len(f.arrays) == 0 && f.minItems == 0 && f.maxItems == grammar.Unlimited {
		return b.anyArray()
	}
	places := 0
	open := true // elements after all places are allowed
	for _, l := range f.arrays {
		places = max(places, len(l.first))
		open = open && (l.rest != nil || len(l.first) == 0 || b.cfg.AllowExtra)
	}
	if places > b.cfg.MaxMembers {
		tooMuch(at, "prefixItems", "%d, over MaxMembers, %d", places, b.cfg.MaxMembers)
	}
	b.spend((1+places)*len(f.arrays), at)
	first := make([]*grammar.Expr, places)
	for i := range first {
		first[i] = b.inside(f.schemasAt(i))
	}
	rest := nothing
	if open {
		rest = b.inside(f.schemasAt(places))
	}
	return b.elements(first, rest, f.minItems, f.maxItems)
}

// schemasAt returns the schemas that f has for element i of an array, possibly with duplicates.
func (f *flat) schemasAt(i int) []*value {
	var schemas []*value
	for _, l := range f.arrays {
		s := l.rest
		if i < len(l.first) {
			s = l.first[i]
		}
		if s != nil {
			schemas = append(schemas, s)
		}
	}
	return schemas
}

// elements returns the expression of an array. Element i matches first[i]; the elements after
// those of first match rest. The number of elements is between least and most; most may be
// Unlimited.
func (b *builder) elements(first []*grammar.Expr, rest *grammar.Expr, least, most int) *grammar.Expr {
	if most != grammar.Unlimited && most < least {
		return nothing
	}
	n := len(first)
	if most != grammar.Unlimited && most < n {
		n, rest = most, nothing
	}
	tail := empty // what may follow the first n
	if more := most - n; rest != nothing && more != 0 {
		if most == grammar.Unlimited {
			more = grammar.Unlimited
		}
		rest = b.rule(rest)
		tail = b.tail(rest, n, max(0, least-n), more)
	} else if least > n {
		return nothing
	}
	for i := n - 1; i >= 0; i-- {
		e := seq(first[i], tail)
		if i > 0 {
			e = seq(b.comma(), e)
		}
		if i >= least {
			e = optional(e)
		}
		tail = e
	}
	return seq(lit("["), b.gap(), b.closing(tail))
}

// tail returns the expression of the elements that follow the first n elements of an array. They
// match rest, and their number is between least and most. With n of 0, no comma precedes the
// first of them.
func (b *builder) tail(rest *grammar.Expr, n, least, most int) *grammar.Expr {
	next := seq(b.comma(), rest)
	if n > 0 {
		return repeat(next, least, most)
	}
	if most != grammar.Unlimited {
		most--
	}
	list := seq(rest, repeat(next, max(0, least-1), most))
	if least == 0 {
		return optional(list)
	}
	return list
}

// closing returns the expression list of an array's elements, followed by a gap if there is any
// element, and the closing bracket. An empty array gets no second gap: the gap after the opening
// bracket and this one together would match two spaces.
func (b *builder) closing(list *grammar.Expr) *grammar.Expr {
	if list.Op == grammar.Repeat && list.Min == 0 && list.Max == 1 {
		return seq(optional(seq(list.Sub[0], b.gap())), lit("]"))
	}
	if list == empty {
		return lit("]")
	}
	return seq(list, b.gap(), lit("]"))
}
