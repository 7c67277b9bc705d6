package gguf

import "fmt"

// Type is the format of a tensor's values, with ggml's number.
type Type uint32

// The supported types. In a block format a row is a sequence of blocks.
const (
	F32    Type = 0
	F16    Type = 1
	Q4_0   Type = 2
	Q4_1   Type = 3
	Q5_0   Type = 6
	Q5_1   Type = 7
	Q8_0   Type = 8
	Q4_K   Type = 12
	Q5_K   Type = 13
	Q6_K   Type = 14
	IQ4_NL Type = 20
	BF16   Type = 30
	MXFP4  Type = 39
)

// layout describes the blocks of a type.
type layout struct {
	name          string
	values, bytes int    // of a block
	sub           int    // values that share a scale; 0 for plain floats
	mins          bool   // a minimum is added to scaled weights
	high          int    // bits of a code that are stored apart from its nibble
	weights       []int8 // by code; nil if the weights are stored as bytes
}

var layouts = [...]layout{
	F32:    {name: "F32", values: 1, bytes: 4},
	F16:    {name: "F16", values: 1, bytes: 2},
	BF16:   {name: "BF16", values: 1, bytes: 2},
	Q4_0:   {name: "Q4_0", values: 32, bytes: 18, sub: 32, weights: integers(-8, 7)},
	Q4_1:   {name: "Q4_1", values: 32, bytes: 20, sub: 32, mins: true, weights: integers(0, 15)},
	Q5_0:   {name: "Q5_0", values: 32, bytes: 22, sub: 32, high: 1, weights: integers(-16, 15)},
	Q5_1:   {name: "Q5_1", values: 32, bytes: 24, sub: 32, mins: true, high: 1, weights: integers(0, 31)},
	Q8_0:   {name: "Q8_0", values: 32, bytes: 34, sub: 32},
	Q4_K:   {name: "Q4_K", values: 256, bytes: 144, sub: 32, mins: true},
	Q5_K:   {name: "Q5_K", values: 256, bytes: 176, sub: 32, mins: true, high: 1},
	Q6_K:   {name: "Q6_K", values: 256, bytes: 210, sub: 16, high: 2},
	IQ4_NL: {name: "IQ4_NL", values: 32, bytes: 18, sub: 32, weights: weightsIQ4NL},
	MXFP4:  {name: "MXFP4", values: 32, bytes: 17, sub: 32, weights: weightsMXFP4},
}

// The weights of the types whose codes are indices into a table. Those of MXFP4 are the values of
// E2M1, doubled, since their scale is halved.
var (
	weightsIQ4NL = []int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	weightsMXFP4 = []int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
)

// integers returns the integers from lo to hi.
func integers(lo, hi int8) []int8 {
	var all []int8
	for v := lo; v <= hi; v++ {
		all = append(all, v)
	}
	return all
}

// others are types of ggml that this package does not read.
var others = map[Type]string{
	4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S",
	22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 40: "NVFP4",
}

// Types lists the supported types, by number.
func Types() []Type {
	var all []Type
	for t := range Type(len(layouts)) {
		if t.Known() {
			all = append(all, t)
		}
	}
	return all
}

// Known reports whether the type is supported.
func (t Type) Known() bool { return int64(t) < int64(len(layouts)) && layouts[t].values > 0 }

// String returns ggml's name of the type.
func (t Type) String() string {
	if t.Known() {
		return layouts[t].name
	}
	if name, ok := others[t]; ok {
		return name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// UnmarshalText accepts the name of a supported type.
func (t *Type) UnmarshalText(text []byte) error {
	for _, u := range Types() {
		if u.String() == string(text) {
			*t = u
			return nil
		}
	}
	return fmt.Errorf("gguf: unknown type %q, want one of %v", text, Types())
}

// BlockValues returns the number of values in a block: 1 for plain floats. The type must be
// known.
func (t Type) BlockValues() int { return t.layout().values }

// BlockBytes returns the size of a block. The type must be known.
func (t Type) BlockBytes() int { return t.layout().bytes }

// Bytes returns the size of n values. It panics if n is no multiple of BlockValues. The type must
// be known.
func (t Type) Bytes(n int) int {
	l := t.layout()
	if n%l.values != 0 {
		panic(fmt.Sprintf("gguf: %d values of %s, whose blocks have %d", n, l.name, l.values))
	}
	return n / l.values * l.bytes
}

// SubBlock returns the number of values that share a scale, 0 for plain floats. The type must
// be known.
func (t Type) SubBlock() int { return t.layout().sub }

// HasMins reports whether a minimum is added to scaled values. The type must be known.
func (t Type) HasMins() bool { return t.layout().mins }

// Weights returns the weight of each code; nil if the type stores weights as bytes or floats, or
// integers in K blocks. The type must be known. The caller must not modify the slice.
func (t Type) Weights() []int8 { return t.layout().weights }

func (t Type) layout() *layout {
	if !t.Known() {
		panic(fmt.Sprintf("gguf: %v is not read", t))
	}
	return &layouts[t]
}
