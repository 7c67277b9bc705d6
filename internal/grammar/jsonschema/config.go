package jsonschema

import "github.com/coppice-llm/coppice/internal/bounds"

// Config says which of the valid texts a grammar has, and what schemas may cost.
// The zero value works.
type Config struct {
	Compact    bool // no white space between tokens
	AllowExtra bool // absent additionalProperties and items allow anything, as in the standard

	// Digits of a number, so that none goes on for ever. Those of the exponent are
	// two by default: with twenty before the point, all numbers fit a float64.
	IntegerDigits  int `default:"20" min:"1" max:"400"` // before the point; default 20
	FractionDigits int `default:"20" min:"1" max:"400"` // behind it; default 20
	ExponentDigits int `default:"2" min:"1" max:"400"`  // default 2

	MaxBytes        int `default:"1<<20" min:"1"`  // of a schema's text; default 1 MiB
	MaxDepth        int `default:"128" min:"1"`    // of arrays and objects in it; default 128
	MaxValues       int `default:"100000" min:"1"` // JSON values in it; default 100,000
	MaxMembers      int `default:"1024" min:"1"`   // properties of one object, prefixItems of one array; default 1024
	MaxAlternatives int `default:"256" min:"1"`    // that anyOf, oneOf and allOf of one place multiply to; default 256

	// MaxSize is of the grammar, in expressions, each as often as it occurs in a
	// rule, and of the work to make it: what a keyword lists counts each time that
	// its schema is met. Default 100,000, which grammar.Limits has room for.
	MaxSize int `default:"100000" min:"1"`
}

// WithDefaults returns c with defaults for what is zero.
func (c Config) WithDefaults() Config { return bounds.Fill(c) }

// Validate reports all fields that no Config can have.
func (c Config) Validate() error { return bounds.Check("jsonschema: Config", c.WithDefaults()) }

// maxDigits bounds the digits that a Config may ask for, and the exponents and
// lengths of numbers in schemas: the largest float64 has 309.
const maxDigits = 400
