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

// Value is one metadata value; it refers to the file's bytes.
type Value struct {
	Kind Kind
	Elem Kind   // kind of an array's elements
	n    int    // number of an array's elements
	raw  []byte // a string's text, or all elements of an array
}

// Len returns the number of elements of an array, 0 for other kinds.
func (v Value) Len() int { return v.n }

// Meta is the metadata by key. It refers to the file's bytes, but the values that its methods
// return are copies.
type Meta struct {
	values map[string]Value
	keys   []string // in the order of the file
}

// Keys lists the keys in the order of the file.
func (m *Meta) Keys() []string { return slices.Clone(m.keys) }

// Value returns the value of a key.
func (m *Meta) Value(key string) (Value, bool) {
	v, ok := m.values[key]
	return v, ok
}

// Has reports whether the key has a value.
func (m *Meta) Has(key string) bool {
	_, ok := m.values[key]
	return ok
}

// String returns the value of key; false if the key is absent or of another kind.
func (m *Meta) String(key string) (string, bool) {
	v := m.values[key]
	return string(v.raw), v.Kind == String && m.Has(key)
}

// Uint returns the value of key if it is a non-negative integer of any width; otherwise 0, false.
func (m *Meta) Uint(key string) (uint64, bool) {
	v, ok := m.values[key]
	if !ok || v.Kind == Array || v.Kind == String {
		return 0, false
	}
	return whole(v.Kind, v.raw)
}

// Float returns the value of key if it is a number of any kind but bool; otherwise 0, false.
func (m *Meta) Float(key string) (float64, bool) {
	v, ok := m.values[key]
	if !ok || v.Kind == Array || v.Kind == String || v.Kind == Bool {
		return 0, false
	}
	return number(v.Kind, v.raw), true
}

// Bool returns a boolean; false, false if the key is absent or of another kind.
func (m *Meta) Bool(key string) (value, ok bool) {
	v, ok := m.values[key]
	if !ok || v.Kind != Bool {
		return false, false
	}
	return v.raw[0] != 0, true
}

// Strings returns the elements of an array of strings; nil, false if the key has none. It takes
// time linear in their bytes.
func (m *Meta) Strings(key string) ([]string, bool) {
	v, ok := m.values[key]
	if !ok || v.Kind != Array || v.Elem != String {
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
func (m *Meta) Uints(key string) ([]uint64, bool) {
	v, ok := m.values[key]
	if !ok || v.Kind != Array || v.Elem == String {
		return nil, false
	}
	out, size := make([]uint64, v.n), kindBytes[v.Elem]
	for i := range out {
		if out[i], ok = whole(v.Elem, v.raw[i*size:]); !ok {
			return nil, false
		}
	}
	return out, true
}

// Floats returns the elements of an array of numbers; nil, false if the key has none.
func (m *Meta) Floats(key string) ([]float64, bool) {
	v, ok := m.values[key]
	if !ok || v.Kind != Array || v.Elem == String || v.Elem == Bool {
		return nil, false
	}
	out, size := make([]float64, v.n), kindBytes[v.Elem]
	for i := range out {
		out[i] = number(v.Elem, v.raw[i*size:])
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
	case v.Kind == Array:
		return fmt.Sprintf("an array of %d %v", v.n, v.Elem)
	case v.Kind == String:
		return fmt.Sprintf("%q", clip(string(v.raw)))
	case v.Kind == Bool:
		return fmt.Sprint(v.raw[0] != 0)
	}
	return fmt.Sprint(number(v.Kind, v.raw))
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
	case Uint8, Uint16, Uint32, Uint64:
		var b [8]byte
		copy(b[:], raw[:kindBytes[k]])
		return binary.LittleEndian.Uint64(b[:]), true
	case Int8, Int16, Int32, Int64:
		i := signed(k, raw)
		return uint64(i), i >= 0
	}
	return 0, false
}

func signed(k Kind, raw []byte) int64 {
	switch k {
	case Int8:
		return int64(int8(raw[0]))
	case Int16:
		return int64(int16(binary.LittleEndian.Uint16(raw)))
	case Int32:
		return int64(int32(binary.LittleEndian.Uint32(raw)))
	}
	return int64(binary.LittleEndian.Uint64(raw))
}

func number(k Kind, raw []byte) float64 {
	switch k {
	case Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(raw)))
	case Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(raw))
	case Int8, Int16, Int32, Int64:
		return float64(signed(k, raw))
	}
	u, _ := whole(k, raw)
	return float64(u)
}
