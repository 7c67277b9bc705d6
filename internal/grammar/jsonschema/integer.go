package jsonschema

import (
	"math/big"
	"strings"

	"github.com/coppice-llm/coppice/grammar"
)

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

// compare compares two integers, given as digits without leading zeros. It returns a negative
// number if a is below b, 0 if they are equal, and else a positive number.
func compare(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

func successor(digits string) string {
	n, _ := new(big.Int).SetString(digits, 10)
	return n.Add(n, big.NewInt(1)).String()
}

// predecessor returns the integer digits, minus 1. digits must not be 0: the result "-1" is
// longer than any single digit, so compare would take it for a larger number. between calls
// predecessor only for a number above another.
func predecessor(digits string) string {
	n, _ := new(big.Int).SetString(digits, 10)
	return n.Sub(n, big.NewInt(1)).String()
}

// integersBetween returns the expression of the integers from a to b inclusive. a and b are
// digits without leading zeros, with 0 ≤ a ≤ b.
func integersBetween(a, b string) *grammar.Expr {
	if len(a) == len(b) {
		return sameLength(a, b)
	}
	parts := []*grammar.Expr{sameLength(a, strings.Repeat("9", len(a)))}
	if len(b)-len(a) > 1 {
		parts = append(parts, seq(oneNine, repeat(digit, len(a), len(b)-2)))
	}
	return either(append(parts, sameLength("1"+strings.Repeat("0", len(b)-1), b))...)
}

// sameLength returns the expression of the digit strings from a to b inclusive. a and b have the
// same length, which is that of all these strings, with leading zeros: "07" to "12" is 0[7-9] |
// 1[0-2].
func sameLength(a, b string) *grammar.Expr {
	n := len(a)
	switch {
	case n == 0:
		return empty
	case strings.Trim(a, "0") == "" && strings.Trim(b, "9") == "":
		return repeat(digit, n, n)
	case a[0] == b[0]:
		return seq(lit(a[:1]), sameLength(a[1:], b[1:]))
	case strings.Trim(a[1:], "0") == "" && strings.Trim(b[1:], "9") == "":
		return seq(digitsFrom(a[0], b[0]), repeat(digit, n-1, n-1))
	}
	middle := nothing
	if a[0]+1 < b[0] {
		middle = seq(digitsFrom(a[0]+1, b[0]-1), repeat(digit, n-1, n-1))
	}
	return either(
		seq(lit(a[:1]), sameLength(a[1:], strings.Repeat("9", n-1))),
		middle,
		seq(lit(b[:1]), sameLength(strings.Repeat("0", n-1), b[1:])),
	)
}

func digitsFrom(lo, hi byte) *grammar.Expr {
	return runes(grammar.Range{Lo: rune(lo), Hi: rune(hi)})
}
