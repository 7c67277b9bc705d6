package jsonschema

import "github.com/coppice-llm/coppice/internal/bounds"

// Config chooses among the valid texts and bounds the cost of schemas. The zero value works.
type Config struct {
	Compact    bool // no white space between tokens
	Inline     bool // a space between tokens, but no line breaks
	AllowExtra bool // absent additionalProperties and items allow anything, as in the standard

	// Most digits of a number, so that a model can't write digits without end. With 20 digits
	// before the point and an exponent of 2, numbers stay below 10^119 and fit a float64.
	IntegerDigits  int `default:"20" min:"1" max:"400"` // before the point; default 20
	FractionDigits int `default:"20" min:"1" max:"400"` // after the point; default 20
	ExponentDigits int `default:"2" min:"1" max:"400"`  // default 2

	MaxBytes        int `default:"1<<20" min:"1"`  // bytes of a schema; default 1 MiB
	MaxDepth        int `default:"128" min:"1"`    // nesting of arrays and objects; default 128
	MaxValues       int `default:"100000" min:"1"` // JSON values in a schema; default 100,000
	MaxMembers      int `default:"1024" min:"1"`   // properties of one object, prefixItems of one array; default 1024
	MaxAlternatives int `default:"256" min:"1"`    // product of the branches of anyOf, oneOf and allOf at one place; default 256

	// MaxSize bounds the grammar, in expressions, where a shared one counts as often as it
	// occurs in rules. It also bounds the work of making it: the entries of a keyword count
	// each time that its schema is applied. Default 100,000, below the default of
	// grammar.Limits.Exprs.
	MaxSize int `default:"100000" min:"1"`
}

// WithDefaults returns c with defaults for the fields that are zero.
func (c Config) WithDefaults() Config { return bounds.Fill(c) }

// Validate returns an error that names all invalid fields, or nil.
func (c Config) Validate() error { return bounds.Check("jsonschema: Config", c.WithDefaults()) }

// maxDigits bounds three things: the digits of numbers that a Config allows, the exponents of
// numbers in schemas, and half the length of these numbers. The largest float64 has 309 digits
// before the point.
const maxDigits = 400
