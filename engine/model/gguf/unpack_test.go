package gguf

import (
	"math"
	"testing"
)

// The parts of an unpacked block give the values that Dequantize returns.
func TestUnpackedValuesAreDequantized(t *testing.T) {
	f, _ := readGolden(t)
	for _, tensor := range f.Tensors {
		typ := tensor.Type
		if typ.SubBlock() == 0 {
			continue
		}
		values, size := typ.BlockValues(), typ.BlockBytes()
		want := make([]float32, values)
		for data := tensor.Data; len(data) > 0; data = data[size:] {
			var b Block
			Unpack(typ, &b, data[:size])
			Dequantize(typ, want, data[:size])
			for i, w := range want {
				n := i / typ.SubBlock()
				v := b.Scales[n] * float32(b.Quants[i])
				if typ.HasMins() {
					v = float32(v) + b.Mins[n]
				}
				if math.Float32bits(v) != math.Float32bits(w) {
					t.Fatalf("%v: value %d is %v, want %v", typ, i, v, w)
				}
			}
		}
	}
}
