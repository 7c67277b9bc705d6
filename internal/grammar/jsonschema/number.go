package jsonschema

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/coppice-llm/coppice/grammar"
)

// bound is one end of a range of numbers. If value is nil, the range is open at this end.
type bound struct {
	value  *big.Rat
	strict bool // value itself is outside the range
}

// within reports whether x is inside the range that b ends. sign is 1 if b is the lower end, -1
// if it is the upper one.
func (b bound) within(x *big.Rat, sign int) bool {
	if b.value == nil {
		return true
	}
	c := x.Cmp(b.value) * sign
	return c > 0 || c == 0 && !b.strict
}

// narrow sets b to the tighter of b and other. Both are lower ends if sign is 1, or upper ends if
// it is -1.
func (b *bound) narrow(other bound, sign int) {
	if b.value == nil || b.within(other.value, sign) {
		*b = other
	}
	if b.value.Cmp(other.value) == 0 && other.strict {
		b.strict = true
	}
}

func rationalOf(s, arg *value, name string) (*big.Rat, error) {
	if arg.kind != number {
		return nil, wrong(s, name, "must be a number")
	}
	r, ok := rational(arg.text)
	if !ok {
		return nil, tooMuch(s, name, "has over %d digits", maxDigits)
	}
	return r, nil
}

// meetBound returns the meet function of a lower bound for sign 1, or of an upper bound for sign
// -1. For an inclusive bound, exclusive is the name of the exclusive keyword, else it is "". In
// draft-04 and OpenAPI 3.0 the exclusive keyword is a boolean next to the inclusive one, which it
// makes strict; alone such a boolean restricts nothing.
func meetBound(sign int, exclusive string) func(f *flat, s, arg *value, name string) error {
	return func(f *flat, s, arg *value, name string) error {
		strict := exclusive == ""
		if strict && arg.kind == boolean {
			return nil
		}
		r, err := rationalOf(s, arg, name)
		if err != nil {
			return err
		}
		if !strict {
			v := s.get(exclusive)
			strict = v != nil && v.kind == boolean && v.yes
		}
		end := &f.least
		if sign < 0 {
			end = &f.most
		}
		end.narrow(bound{r, strict}, sign)
		return nil
	}
}

// meetMultipleOf accepts 1, 0.1, 0.01 and so on, which only limit the digits after the point. It
// refuses other values.
func meetMultipleOf(f *flat, s, arg *value, name string) error {
	r, err := rationalOf(s, arg, name)
	if err != nil {
		return err
	}
	if r.Sign() <= 0 {
		return wrong(s, name, "must be above 0")
	}
	places := len(r.Denom().String()) - 1
	if !r.IsInt() && strings.TrimRight(r.Denom().String(), "0") != "1" || r.Num().Cmp(big.NewInt(1)) != 0 {
		f.refuse(numbers, refusal{s, name, fmt.Sprintf("%.50s is none of 1, 0.1, 0.01, …", arg.text)})
		return nil
	}
	if f.places < 0 || places < f.places {
		f.places = places
	}
	return nil
}

// number returns the expression of f's numbers, or with integersOnly that of f's integers.
func (b *builder) number(f *flat, integersOnly bool) *grammar.Expr {
	places := b.cfg.FractionDigits
	if f.places >= 0 {
		places = min(places, f.places)
	}
	if integersOnly {
		places = 0
	}
	d := decimals{integer: b.cfg.IntegerDigits, fraction: places}
	if f.least.value == nil && f.most.value == nil {
		if places == 0 {
			return either(lit("0"), seq(optional(lit("-")), oneNine, repeat(digit, 0, d.integer-1)))
		}
		e := seq(optional(lit("-")), either(lit("0"), seq(oneNine, repeat(digit, 0, d.integer-1))), d.anyFraction())
		if f.places < 0 {
			sign := optional(runes(grammar.Range{Lo: '+', Hi: '+'}, grammar.Range{Lo: '-', Hi: '-'}))
			letter := runes(grammar.Range{Lo: 'E', Hi: 'E'}, grammar.Range{Lo: 'e', Hi: 'e'})
			e = seq(e, optional(seq(letter, sign, repeat(digit, 1, b.cfg.ExponentDigits))))
		}
		return e
	}
	zero := new(big.Rat)
	below := bound{zero, true} // numbers below 0 are made from their magnitudes and a sign
	low, high := f.least, f.most
	low.narrow(bound{zero, false}, 1)
	if high.value != nil && (high.value.Sign() < 0 || high.value.Sign() == 0 && high.strict) {
		low = bound{big.NewRat(1, 1), false}
		high = below // an empty range: 1 to below 0
	}
	positive := d.between(low, high)
	high = f.most
	high.narrow(below, -1)
	low = f.least
	if low.value != nil && low.value.Sign() >= 0 {
		return positive
	}
	if low.value != nil {
		low.value = new(big.Rat).Neg(low.value)
	}
	high.value = new(big.Rat).Neg(high.value)
	return either(positive, seq(lit("-"), d.between(high, low)))
}

// decimals makes expressions of numbers of 0 or more. integer is the largest number of digits
// before the point, fraction that of digits after it.
type decimals struct{ integer, fraction int }

// between returns the expression of the numbers from low to high. low must have a value of at
// least 0; high may have none. The expression has up to three branches: numbers with the integer
// part of low, numbers with that of high, and numbers between.
func (d decimals) between(low, high bound) *grammar.Expr {
	lowInt, lowRest := digitsOf(low.value)
	top := strings.Repeat("9", d.integer)
	rest := limit{none: true}
	if high.value != nil {
		highInt, highRest := digitsOf(high.value)
		if len(highInt) <= d.integer {
			top, rest = highInt, limit{digits: highRest, strict: high.strict}
		}
	}
	first := limit{digits: lowRest, strict: low.strict}
	switch {
	case compare(lowInt, top) > 0:
		return nothing
	case lowInt == top:
		return seq(lit(lowInt), d.withPoint(first, rest))
	}
	middle := nothing
	if from, to := successor(lowInt), predecessor(top); compare(from, to) <= 0 {
		middle = seq(integersBetween(from, to), d.anyFraction())
	}
	return either(
		seq(lit(lowInt), d.withPoint(first, limit{none: true})),
		middle,
		seq(lit(top), d.withPoint(limit{none: true}, rest)),
	)
}

// anyFraction returns the expression of an optional point with any digits.
func (d decimals) anyFraction() *grammar.Expr {
	if d.fraction == 0 {
		return empty
	}
	return optional(seq(lit("."), repeat(digit, 1, d.fraction)))
}

// limit bounds the digits after a point; missing digits are zeros. If none is set, there is no
// bound.
type limit struct {
	digits       string
	strict, none bool
}

// endsAbove reports whether a number without further digits satisfies the lower limit l, and
// endsBelow whether it satisfies the upper limit u.
func (l limit) endsAbove() bool { return l.none || l.digits == "" && !l.strict }
func (u limit) endsBelow() bool { return u.none || u.digits != "" || !u.strict }

// withPoint returns the expression of a point and digits from the lower limit l to the upper
// limit u. It also matches "" if l and u allow a fraction of 0.
func (d decimals) withPoint(l, u limit) *grammar.Expr {
	point := nothing
	if d.fraction > 0 {
		point = seq(lit("."), d.step(l, u, d.fraction))
	}
	if l.endsAbove() && u.endsBelow() {
		return either(empty, point)
	}
	return point
}

// step returns the expression of 1 to n digits from l to u. It branches on the first digit: after
// a first digit equal to that of a limit, the following digits are limited too; after a digit
// between, they are free.
func (d decimals) step(l, u limit, n int) *grammar.Expr {
	if n == 0 {
		return nothing
	}
	if l.endsAbove() && u.none {
		return repeat(digit, 1, n)
	}
	from, to := byte('0'), byte('9')
	if !l.none && l.digits != "" {
		from = l.digits[0]
	}
	if !u.none {
		to = '0'
		if u.digits != "" {
			to = u.digits[0]
		}
		if u.digits == "" && u.strict {
			return nothing
		}
	}
	var parts []*grammar.Expr
	for c := from; c <= to; {
		nextL, nextU := limit{none: true}, limit{none: true}
		last := c
		if !l.none && c == from {
			nextL = limit{digits: tail(l.digits), strict: l.strict}
		}
		if !u.none && c == to {
			nextU = limit{digits: tail(u.digits), strict: u.strict}
		}
		if nextL.none && nextU.none { // one branch for all digits strictly between the bounds
			if last = to; !u.none {
				last--
			}
		}
		e := d.step(nextL, nextU, n-1)
		if nextL.endsAbove() && nextU.endsBelow() {
			e = either(empty, e)
		}
		parts = append(parts, seq(runes(grammar.Range{Lo: rune(c), Hi: rune(last)}), e))
		c = last + 1
	}
	return either(parts...)
}

func tail(s string) string {
	if s == "" {
		return ""
	}
	return s[1:]
}
