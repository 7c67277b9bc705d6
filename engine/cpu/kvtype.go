package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/coppice-llm/coppice/internal/f32"
	"github.com/coppice-llm/coppice/kv"
)

// How K and V are stored in pages. An element is rounded once, when it is written, and widened
// exactly when it is read; all arithmetic is in f32. So every path gives the same bits for a type,
// and two types differ only in the rounding of elements.
//
// A row is one head of one token. In Q8_0 it is dim signed bytes followed by the f16 scales of its
// dim/32 blocks: for a dim of 64 that is 64+4 bytes, against 256 in F32. A row is written as a
// whole, so a scale never changes after elements that use it were written.

// q8Block is the number of elements in a block of Q8_0, which share a scale.
const q8Block = 32

// kvTypes lists the types that K and V may be stored in.
var kvTypes = []kv.DType{kv.F32, kv.F16, kv.BF16, kv.Q8_0}

// KVTypes returns the valid values of Config.KVType.
func KVTypes() []kv.DType { return slices.Clone(kvTypes) }

// checkKVType returns an error if heads of dim elements can't be stored in type d.
func checkKVType(d kv.DType, dim int) error {
	if d == kv.Q8_0 && dim%q8Block != 0 {
		return fmt.Errorf("cpu: KVType is q8_0, whose blocks are of %d, and heads are of %d: use f16 or bf16", q8Block, dim)
	}
	return nil
}

// encodeRow rounds x to type d, which is not F32, and writes the row to dst.
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

// encodeBlock writes the signed bytes of a block of Q8_0 to dst and returns the block's scale as
// f16 bits: the largest magnitude divided by 127. A block with an infinity or a NaN gets a NaN as
// its scale, so that the sequence fails as it would in f32.
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
		// The f16 scale may have been rounded below top/127, so the quotient can pass 127.
		dst[i] = byte(int8(max(-127, min(127, math.RoundToEven(float64(v)/float64(step))))))
	}
	return scale
}

// decodeRow widens a row of type d, which is not F32, exactly.
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
			// A scale has 11 bits and an entry 8: the product fits in f32's 24 and is exact.
			dst[i] = float32(int8(row[i])) * f32.FromF16(binary.NativeEndian.Uint16(scales[i/q8Block*2:]))
		}
	default:
		panic(fmt.Sprintf("cpu: KV of type %v", d))
	}
}
