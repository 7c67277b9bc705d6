package jsonschema

import (
	"errors"
	"fmt"
)

// Config says which of the valid texts a grammar has, and what schemas may cost.
// The zero value works.
type Config struct {
	Compact    bool // no white space between tokens
	AllowExtra bool // absent additionalProperties and items allow anything, as in the standard

	// Digits of a number, so that none goes on for ever. Those of the exponent are
	// two by default: with twenty before the point, all numbers fit a float64.
	IntegerDigits  int // before the point; default 20
	FractionDigits int // behind it; default 20
	ExponentDigits int // default 2

	MaxBytes        int // of a schema's text; default 1 MiB
	MaxDepth        int // of arrays and objects in it; default 128
	MaxValues       int // JSON values in it; default 100,000
	MaxMembers      int // properties of one object, prefixItems of one array; default 1024
	MaxAlternatives int // that anyOf, oneOf and allOf of one place multiply to; default 256

	// MaxSize is of the grammar, in expressions, each as often as it occurs in a
	// rule, and of the work to make it: what a keyword lists counts each time that
	// its schema is met. Default 100,000, which grammar.Limits has room for.
	MaxSize int
}

// WithDefaults returns c with defaults for what is zero.
func (c Config) WithDefaults() Config {
	for _, d := range c.sizes() {
		if *d.at == 0 {
			*d.at = d.value
		}
	}
	return c
}

// Validate reports all fields that no Config can have.
func (c Config) Validate() error {
	var faults []error
	for _, d := range c.sizes() {
		if *d.at < 0 {
			faults = append(faults, fmt.Errorf("jsonschema: Config.%s is %d, must not be negative", d.name, *d.at))
		}
	}
	if c.IntegerDigits > maxDigits || c.FractionDigits > maxDigits || c.ExponentDigits > maxDigits {
		faults = append(faults, fmt.Errorf("jsonschema: Config has %d, %d and %d digits, must have %d at most",
			c.IntegerDigits, c.FractionDigits, c.ExponentDigits, maxDigits))
	}
	return errors.Join(faults...)
}

// maxDigits bounds the digits that a Config may ask for, and the exponents and
// lengths of numbers in schemas: the largest float64 has 309.
const maxDigits = 400

type size struct {
	name  string
	at    *int
	value int
}

func (c *Config) sizes() []size {
	return []size{
		{"IntegerDigits", &c.IntegerDigits, 20},
		{"FractionDigits", &c.FractionDigits, 20},
		{"ExponentDigits", &c.ExponentDigits, 2},
		{"MaxBytes", &c.MaxBytes, 1 << 20},
		{"MaxDepth", &c.MaxDepth, 128},
		{"MaxValues", &c.MaxValues, 100_000},
		{"MaxMembers", &c.MaxMembers, 1024},
		{"MaxAlternatives", &c.MaxAlternatives, 256},
		{"MaxSize", &c.MaxSize, 100_000},
	}
}
