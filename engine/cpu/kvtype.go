package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/coppice-llm/coppice/internal/f32"
	"github.com/coppice-llm/coppice/kv"
)

// How K and V stand in pages. Entries are rounded once, when they are written, and widened
// exactly when they are read; what follows is the arithmetic of f32 entries. So every path
// gives the same bits for a type, and types differ by the rounding of entries alone.
//
// A row is one head of one token. Of Q8_0 it is the dim signed bytes and behind them the
// f16 scales of its blocks: the row is written whole, so no scale ever changes.

// q8Block is the elements of a block of Q8_0.
const q8Block = 32

// kvTypes are the types that K and V may have.
var kvTypes = []kv.DType{kv.F32, kv.F16, kv.BF16, kv.Q8_0}

// KVTypes lists what Config.KVType may be.
func KVTypes() []kv.DType { return slices.Clone(kvTypes) }

// checkKVType reports a type that heads of dim can't have.
func checkKVType(d kv.DType, dim int) error {
	if d == kv.Q8_0 && dim%q8Block != 0 {
		return fmt.Errorf("cpu: KVType is q8_0, whose blocks are of %d, and heads are of %d: use f16 or bf16", q8Block, dim)
	}
	return nil
}

// encodeRow writes x as a row of type d, not F32, to dst.
func encodeRow(d kv.DType, dst []byte, x []float32) {
	switch d {
	case kv.F16:
		for i, v := range x {
			binary.NativeEndian.PutUint16(dst[2*i:], f32.ToF16(v))
		}
	case kv.BF16:
		for i, v := range x {
			binary.NativeEndian.PutUint16(dst[2*i:], f32.ToBF16(v))
		}
	case kv.Q8_0:
		scales := dst[len(x):]
		for b := 0; b < len(x); b += q8Block {
			scale := encodeBlock(dst[b:b+q8Block], x[b:b+q8Block])
			binary.NativeEndian.PutUint16(scales[b/q8Block*2:], scale)
		}
	default:
		panic(fmt.Sprintf("cpu: KV of type %v", d))
	}
}

// encodeBlock writes the bytes of a block of Q8_0 and returns its scale, the largest
// magnitude over 127. A block with an infinity or a NaN has a NaN for its scale, so that
// the sequence fails as it would in f32.
func encodeBlock(dst []byte, x []float32) (scale uint16) {
	top := float32(0)
	for _, v := range x {
		if v-v != 0 {
			clear(dst)
			return 0x7e00
		}
		top = max(top, v, -v)
	}
	scale = f32.ToF16(top / 127)
	step := f32.FromF16(scale)
	if step == 0 {
		clear(dst)
		return 0
	}
	for i, v := range x {
		// The stored scale may be below top/127.
		dst[i] = byte(int8(max(-127, min(127, math.RoundToEven(float64(v)/float64(step))))))
	}
	return scale
}

// decodeRow widens a row of type d, not F32.
func decodeRow(d kv.DType, dst []float32, row []byte) {
	switch d {
	case kv.F16:
		for i := range dst {
			dst[i] = f32.FromF16(binary.NativeEndian.Uint16(row[2*i:]))
		}
	case kv.BF16:
		for i := range dst {
			dst[i] = f32.FromBF16(binary.NativeEndian.Uint16(row[2*i:]))
		}
	case kv.Q8_0:
		scales := row[len(dst):]
		for i := range dst {
			// 11 bits by 8: the product is exact.
			dst[i] = float32(int8(row[i])) * f32.FromF16(binary.NativeEndian.Uint16(scales[i/q8Block*2:]))
		}
	default:
		panic(fmt.Sprintf("cpu: KV of type %v", d))
	}
}
