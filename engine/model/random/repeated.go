package random

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
)

// Repeated returns an in-memory model of shape c, for benchmarks: all matrices repeat one block
// of random bf16 numbers, and all norms are ones, so it takes as much memory as its largest
// matrix. Its output is meaningless, its ID is the same for all shapes, and it has no
// tokenizer.
func Repeated(c *model.Config, seed uint64) *model.Model {
	weights, most := c.Weights(), 0
	for _, w := range weights {
		most = max(most, w.Values())
	}
	data := make([]byte, 2*most)
	r := rand.New(rand.NewPCG(seed, 1))
	filled := 2 * min(most, 1<<20)
	for i := 0; i < filled; i += 2 {
		// Any sign and mantissa with exponent 2^-6: values around 1/√4096.
		binary.LittleEndian.PutUint16(data[i:], uint16(r.Uint32())&0x807f|121<<7)
	}
	for filled < len(data) {
		filled += copy(data[filled:], data[:filled])
	}
	ones := make([]byte, 2*max(c.Hidden, c.HeadDim))
	for i := 0; i < len(ones); i += 2 {
		binary.LittleEndian.PutUint16(ones[i:], 0x3f80)
	}
	tensors := make([]*model.Tensor, len(weights))
	for i, w := range weights {
		from := data
		if len(w.Shape) == 1 && 2*w.Shape[0] <= len(ones) {
			from = ones
		}
		tensors[i] = &model.Tensor{Name: w.Name, DType: kv.BF16, Shape: w.Shape, Data: from[:2*w.Values()]}
	}
	return model.New(c, "repeated", tensors)
}
