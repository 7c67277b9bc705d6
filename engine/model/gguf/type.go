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

// layout is the number of values and of bytes in a block.
type layout struct {
	name          string
	values, bytes int
}

var layouts = [...]layout{
	F32: {"F32", 1, 4}, F16: {"F16", 1, 2}, BF16: {"BF16", 1, 2},
	Q4_0: {"Q4_0", 32, 18}, Q4_1: {"Q4_1", 32, 20}, Q5_0: {"Q5_0", 32, 22}, Q5_1: {"Q5_1", 32, 24}, Q8_0: {"Q8_0", 32, 34},
	Q4_K: {"Q4_K", 256, 144}, Q5_K: {"Q5_K", 256, 176}, Q6_K: {"Q6_K", 256, 210},
	IQ4_NL: {"IQ4_NL", 32, 18}, MXFP4: {"MXFP4", 32, 17},
}

// others are types of ggml that this package does not read.
var others = map[Type]string{
	4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S",
	22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 40: "NVFP4",
}

// Types lists the supported types, by number.
func Types() []Type {
	return []Type{F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, IQ4_NL, BF16, MXFP4}
}

// Known reports whether the type is supported.
func (t Type) Known() bool { return t.find().values > 0 }

// find returns the layout of the type, the zero layout if the type is not supported.
func (t Type) find() layout {
	if int64(t) < int64(len(layouts)) {
		return layouts[t]
	}
	return layout{}
}

// String returns ggml's name of the type.
func (t Type) String() string {
	if l := t.find(); l.values > 0 {
		return l.name
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

func (t Type) layout() layout {
	l := t.find()
	if l.values == 0 {
		panic(fmt.Sprintf("gguf: %v is not read", t))
	}
	return l
}
