package random

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/gguf"
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

// Zeros returns an in-memory model of shape c for plans of memory, and for devices that make weights
// themselves: all matrices are zeros of type t, and all vectors are ones. It has no tokenizer. The rows of
// all matrices must be whole blocks of t.
func Zeros(c *model.Config, t gguf.Type) *model.Model {
	weights, most := c.Weights(), 0
	for _, w := range weights {
		most = max(most, w.Values())
	}
	data := make([]byte, t.Bytes(most))
	ones := bytes.Repeat([]byte{0x80, 0x3f}, max(c.Hidden, c.HeadDim))
	tensors := make([]*model.Tensor, len(weights))
	for i, w := range weights {
		n := w.Values()
		if tensors[i] = (&model.Tensor{Name: w.Name, Shape: w.Shape}); len(w.Shape) > 1 {
			tensors[i].Quant, tensors[i].Data = t, data[:t.Bytes(n)]
		} else {
			tensors[i].DType, tensors[i].Data = kv.BF16, ones[:2*n]
		}
	}
	return model.New(c, "zeros", tensors)
}
