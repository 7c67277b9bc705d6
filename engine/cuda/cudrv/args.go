package cudrv

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Args lays out a kernel's parameters: each aligned to its size, little-endian.
// It takes Ptr, int32, uint32, uint64, int64 and float32; other types panic.
func Args(values ...any) []byte { return AppendArgs(nil, values...) }

// AppendArgs appends the parameters to b, as Args lays them out. They are aligned relative to the
// start of b, which must be at a multiple of 8 bytes in the buffer that the kernel reads.
func AppendArgs(b []byte, values ...any) []byte {
	for _, v := range values {
		switch v := v.(type) {
		case Ptr:
			b = append64(b, uint64(v))
		case uint64:
			b = append64(b, v)
		case int64:
			b = append64(b, uint64(v))
		case int32:
			b = append32(b, uint32(v))
		case uint32:
			b = append32(b, v)
		case float32:
			b = append32(b, math.Float32bits(v))
		default:
			panic(fmt.Sprintf("cudrv: a kernel's parameter of type %T", v))
		}
	}
	return b
}

func append64(b []byte, v uint64) []byte {
	for len(b)%8 != 0 {
		b = append(b, 0)
	}
	return binary.LittleEndian.AppendUint64(b, v)
}

func append32(b []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(b, v) }
