package writer

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/internal/f32"
)

// Quantised values are within the error that the type's bits permit, and quantising them again
// gives the same values.
func TestQuantizedComesBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1730))
	bound := map[gguf.Type]float64{ // root mean square of the error relative to that of the values
		gguf.F32: 0, gguf.F16: 4e-4, gguf.BF16: 3e-3, gguf.Q8_0: 8e-3, gguf.Q6_K: 2.5e-2, gguf.Q5_1: 4.5e-2, gguf.Q5_K: 4.5e-2, gguf.Q5_0: 5e-2, gguf.Q4_1: 9e-2, gguf.Q4_K: 9e-2, gguf.IQ4_NL: 9e-2, gguf.Q4_0: 0.1, gguf.MXFP4: 0.15,
	}
	for _, typ := range gguf.Types() {
		src := make([]float32, 256*40)
		for i := range src {
			src[i] = float32(rng.NormFloat64() * math.Pow(10, float64(i/256%5-2)))
		}
		clear(src[256:512])
		quantized, got := make([]byte, typ.Bytes(len(src))), make([]float32, len(src))
		Quantize(typ, quantized, src)
		gguf.Dequantize(typ, got, quantized)
		for block := 0; block < len(src); block += 256 {
			var diff, power float64
			for i := block; i < block+256; i++ {
				diff += math.Pow(float64(src[i])-float64(got[i]), 2)
				power += math.Pow(float64(src[i]), 2)
			}
			if math.Sqrt(diff) > bound[typ]*math.Sqrt(power) {
				t.Errorf("%v: block %d is off by %.4f of its size, want %.4f", typ, block/256, math.Sqrt(diff/power), bound[typ])
				break
			}
		}
	}
}

// putHalf returns the binary16 value that no other is closer to.
func TestHalvesAreRounded(t *testing.T) {
	var b, n [2]byte
	rng := rand.New(rand.NewPCG(4, 1730))
	for range 200_000 {
		v := math.Float32frombits(rng.Uint32())
		if math.IsNaN(float64(v)) || math.Abs(float64(v)) > 65504 {
			continue
		}
		got := putHalf(b[:], v)
		for _, step := range []int{-1, 1} {
			h := int(b[0]) | int(b[1])<<8
			n[0], n[1] = byte(h+step), byte((h+step)>>8)
			other := f32.FromF16(binary.LittleEndian.Uint16(n[:]))
			if math.Abs(float64(v)-float64(other)) < math.Abs(float64(v)-float64(got)) {
				t.Fatalf("%v becomes %v, though %v is closer", v, got, other)
			}
		}
	}
}

func TestLengthsMustFit(t *testing.T) {
	for _, f := range []func(){
		func() { gguf.Dequantize(gguf.Q4_0, make([]float32, 32), make([]byte, 17)) },
		func() { gguf.Dequantize(gguf.Q4_0, make([]float32, 33), make([]byte, 18)) },
		func() { Quantize(gguf.Q6_K, make([]byte, 209), make([]float32, 256)) },
		func() { gguf.Dequantize(10, nil, nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		}()
	}
}
