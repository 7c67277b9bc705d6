package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Kind is the type of a metadata value.
type Kind uint32

// The kinds, with the format's numbers.
const (
	Uint8 Kind = iota
	Int8
	Uint16
	Int16
	Uint32
	Int32
	Float32
	Bool
	String
	Array
	Uint64
	Int64
	Float64
)

// kindBytes is the size of a value of each kind, 0 for variable sizes.
var kindBytes = [...]int{Uint8: 1, Int8: 1, Uint16: 2, Int16: 2, Uint32: 4, Int32: 4, Float32: 4, Bool: 1, String: 0, Array: 0, Uint64: 8, Int64: 8, Float64: 8}

var kindNames = [...]string{"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"}

// String returns the name of the kind.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint32(k))
}

// value is one metadata value; it refers to the file's bytes.
type value struct {
	kind Kind
	elem Kind   // kind of an array's elements
	n    int    // number of an array's elements
	raw  []byte // a string's text, or all elements of an array
}

// Meta is the metadata by key. It refers to the file's bytes, but the values that its methods
// return are copies.
type Meta struct {
	values map[string]value
	keys   []string // in the order of the file
}

// Keys lists the keys in the order of the file.
func (m *Meta) Keys() []string { return slices.Clone(m.keys) }

// Has reports whether the key has a value.
func (m *Meta) Has(key string) bool {
	_, ok := m.values[key]
	return ok
}

// String returns the value of key; false if the key is absent or of another kind.
func (m *Meta) String(key string) (string, bool) {
	v := m.values[key]
	return string(v.raw), v.kind == String && m.Has(key)
}

// Uint returns the value of key if it is a non-negative integer of any width; otherwise 0, false.
func (m *Meta) Uint(key string) (uint64, bool) { return scalar(m, key, whole) }

// Float returns the value of key if it is a number of any kind but bool; otherwise 0, false.
func (m *Meta) Float(key string) (float64, bool) { return scalar(m, key, number) }

func scalar[T any](m *Meta, key string, decode func(Kind, []byte) (T, bool)) (value T, ok bool) {
	if v, ok := m.values[key]; ok {
		return decode(v.kind, v.raw)
	}
	return value, false
}

// Bool returns a boolean; false, false if the key is absent or of another kind.
func (m *Meta) Bool(key string) (value, ok bool) {
	v, ok := m.values[key]
	if !ok || v.kind != Bool {
		return false, false
	}
	return v.raw[0] != 0, true
}

// Strings returns the elements of an array of strings; nil, false if the key has none. It takes
// time linear in their bytes.
func (m *Meta) Strings(key string) ([]string, bool) {
	v, ok := m.values[key]
	if !ok || v.kind != Array || v.elem != String {
		return nil, false
	}
	out, rest := make([]string, v.n), v.raw
	for i := range out {
		n := binary.LittleEndian.Uint64(rest)
		out[i] = string(rest[8 : 8+n])
		rest = rest[8+n:]
	}
	return out, true
}

// Uints returns the elements of an array of non-negative integers; nil, false if the key has none
// or an element is negative.
func (m *Meta) Uints(key string) ([]uint64, bool) { return array(m, key, whole) }

// Floats returns the elements of an array of numbers; nil, false if the key has none.
func (m *Meta) Floats(key string) ([]float64, bool) { return array(m, key, number) }

func array[T any](m *Meta, key string, decode func(Kind, []byte) (T, bool)) ([]T, bool) {
	v := m.values[key]
	if v.kind != Array || v.elem == String {
		return nil, false
	}
	out, size := make([]T, v.n), kindBytes[v.elem]
	for i := range out {
		var ok bool
		if out[i], ok = decode(v.elem, v.raw[i*size:]); !ok {
			return nil, false
		}
	}
	return out, true
}

// Text describes the value of key for messages: "absent" if there is none; long values are cut
// short.
func (m *Meta) Text(key string) string {
	v, ok := m.values[key]
	switch {
	case !ok:
		return "absent"
	case v.kind == Array:
		return fmt.Sprintf("an array of %d %v", v.n, v.elem)
	case v.kind == String:
		return fmt.Sprintf("%q", clip(string(v.raw)))
	case v.kind == Bool:
		return fmt.Sprint(v.raw[0] != 0)
	}
	n, _ := number(v.kind, v.raw)
	return fmt.Sprint(n)
}

func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// whole decodes an integer of kind k; false if it is negative or k is no kind of integer.
func whole(k Kind, raw []byte) (uint64, bool) {
	switch k {
	case Float32, Float64, Bool, String, Array:
		return 0, false
	}
	n := integer(k, raw)
	return n, !k.signed() || int64(n) >= 0
}

// number decodes a number of kind k; false if k is no kind of number.
func number(k Kind, raw []byte) (float64, bool) {
	switch k {
	case Bool, String, Array:
		return 0, false
	case Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))), true
	case Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(raw)), true
	}
	n := integer(k, raw)
	if k.signed() {
		return float64(int64(n)), true
	}
	return float64(n), true
}

func (k Kind) signed() bool { return k == Int8 || k == Int16 || k == Int32 || k == Int64 }

// integer decodes an integer of kind k and extends it to 64 bits.
func integer(k Kind, raw []byte) uint64 {
	var b [8]byte
	copy(b[:], raw[:kindBytes[k]])
	n := binary.LittleEndian.Uint64(b[:])
	if k.signed() {
		unused := 64 - 8*kindBytes[k]
		n = uint64(int64(n<<unused) >> unused)
	}
	return n
}
