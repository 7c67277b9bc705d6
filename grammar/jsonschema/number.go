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

func rationalOf(s, arg *value, name string) *big.Rat {
	if arg.kind != number {
		wrong(s, name, "must be a number")
	}
	r, ok := rational(arg.text)
	if !ok {
		tooMuch(s, name, "has over %d digits", maxDigits)
	}
	return r
}

// meetBound returns the meeting of a lower bound for sign 1, or of an upper bound for sign
// -1. For an inclusive bound, exclusive is the name of the exclusive keyword, else it is "". In
// draft-04 and OpenAPI 3.0 the exclusive keyword is a boolean next to the inclusive one, which it
// makes strict; alone such a boolean restricts nothing.
func meetBound(sign int, exclusive string) meeting {
	return func(f *flat, s, arg *value, name string) {
		strict := exclusive == ""
		if strict && arg.kind == boolean {
			return
		}
		r := rationalOf(s, arg, name)
		if !strict {
			v := s.get(exclusive)
			strict = v != nil && v.kind == boolean && v.yes
		}
		end := &f.least
		if sign < 0 {
			end = &f.most
		}
		end.narrow(bound{r, strict}, sign)
	}
}

// meetMultipleOf accepts 1, 0.1, 0.01 and so on, which only limit the digits after the point. It
// refuses other values.
func meetMultipleOf(f *flat, s, arg *value, name string) {
	r := rationalOf(s, arg, name)
	if r.Sign() <= 0 {
		wrong(s, name, "must be above 0")
	}
	places := len(r.Denom().String()) - 1
	if !r.IsInt() && strings.TrimRight(r.Denom().String(), "0") != "1" || r.Num().Cmp(big.NewInt(1)) != 0 {
		f.refuse(numbers, refusal{s, name, fmt.Sprintf("%.50s is none of 1, 0.1, 0.01, …", arg.text)})
		return
	}
	if f.places < 0 || places < f.places {
		f.places = places
	}
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

// limit is a bound of the digits that follow, those before the point first; missing digits are
// zeros. If none is set, any digits satisfy it.
type limit struct {
	digits       string
	strict, none bool
}

// lower and upper return the limits of numbers from, or up to, one with these digits.
func (d decimals) lower(digits string, strict bool) limit {
	return limit{digits, strict, !strict && strings.Trim(digits, "0") == ""}
}

func (d decimals) upper(digits string, strict bool) limit {
	return limit{digits, strict, !strict && d.fraction == 0 && strings.Trim(digits, "9") == ""}
}

// endsBelow reports whether a number without further digits satisfies the upper limit u. It
// satisfies a lower limit only if that is none.
func (u limit) endsBelow() bool { return u.none || u.digits != "" || !u.strict }

// between returns the expression of the numbers from low to high. low must have a value of at
// least 0; high may have none. The expression has up to three branches: numbers as long before the
// point as low, numbers as long as high, and numbers of other lengths.
func (d decimals) between(low, high bound) *grammar.Expr {
	whole, fraction := digitsOf(low.value)
	least, most := len(whole), d.integer
	l, u := d.lower(whole+fraction, low.strict), limit{none: true}
	free, last := most, nothing // free: length up to which all numbers are in the range
	if high.value != nil {
		if whole, fraction = digitsOf(high.value); len(whole) <= most {
			most, free = len(whole), len(whole)-1
			u = d.upper(whole+fraction, high.strict)
			last = d.digits(d.lower("1", false), u, most)
		}
	}
	switch {
	case least > most:
		return nothing
	case least == most:
		return d.digits(l, u, least)
	}
	middle := seq(oneNine, repeat(digit, least, free-1), d.anyFraction())
	return either(d.digits(l, limit{none: true}, least), middle, last)
}

// digits returns the expression of n digits from l to u before the point, and the fraction.
func (d decimals) digits(l, u limit, n int) *grammar.Expr {
	switch {
	case n == 0:
		return d.withPoint(l, u)
	case l.none && u.none:
		return seq(repeat(digit, n, n), d.anyFraction())
	}
	return d.branch(l, u, func(l, u limit) *grammar.Expr { return d.digits(l, u, n-1) })
}

// anyFraction returns the expression of an optional point with any digits.
func (d decimals) anyFraction() *grammar.Expr {
	if d.fraction == 0 {
		return empty
	}
	return optional(seq(lit("."), repeat(digit, 1, d.fraction)))
}

// withPoint returns the expression of a point and digits from the lower limit l to the upper
// limit u. It also matches "" if l and u allow a fraction of 0.
func (d decimals) withPoint(l, u limit) *grammar.Expr {
	point := nothing
	if d.fraction > 0 {
		point = seq(lit("."), d.step(l, u, d.fraction))
	}
	if l.none && u.endsBelow() {
		return either(empty, point)
	}
	return point
}

// step returns the expression of 1 to n digits of a fraction from l to u.
func (d decimals) step(l, u limit, n int) *grammar.Expr {
	switch {
	case n == 0 || !u.none && u.digits == "" && u.strict:
		return nothing
	case l.none && u.none:
		return repeat(digit, 1, n)
	}
	return d.branch(l, u, func(l, u limit) *grammar.Expr {
		e := d.step(l, u, n-1)
		if l.none && u.endsBelow() {
			e = either(empty, e)
		}
		return e
	})
}

// branch returns the expression of a digit and what follows it, for numbers from l to u: after a
// digit equal to that of a limit, the following digits are limited too; after a digit between, they
// are free. next returns the expression of what follows a digit.
func (d decimals) branch(l, u limit, next func(l, u limit) *grammar.Expr) *grammar.Expr {
	from, to := byte('0'), byte('9')
	if !l.none && l.digits != "" {
		from = l.digits[0]
	}
	if !u.none {
		to = (u.digits + "0")[0]
	}
	var parts []*grammar.Expr
	for c := from; c <= to; {
		nextL, nextU := limit{none: true}, limit{none: true}
		last := c
		if !l.none && c == from {
			nextL = d.lower(tail(l.digits), l.strict)
		}
		if !u.none && c == to {
			nextU = d.upper(tail(u.digits), u.strict)
		}
		if nextL.none && nextU.none { // one branch for all digits after which any may follow
			for last < to && (u.none || last+1 < to) {
				last++
			}
		}
		one := runes(grammar.Range{Lo: rune(c), Hi: rune(last)})
		if c == last {
			one = lit(string(rune(c))) // seq joins texts
		}
		parts = append(parts, seq(one, next(nextL, nextU)))
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

// digitsOf returns the digits of x before and after the point, without trailing zeros after the
// point. x must be at least 0 and have a finite number of decimals.
func digitsOf(x *big.Rat) (before, fraction string) {
	n, _ := x.FloatPrec() // exact, since x was a decimal
	before, fraction, _ = strings.Cut(x.FloatString(n), ".")
	return before, strings.TrimRight(fraction, "0")
}

func fractionDigits(x *big.Rat) string {
	_, fraction := digitsOf(new(big.Rat).Abs(x))
	return fraction
}
