package model

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/kv"
)

// Repeated returns an in-memory model of shape c, for benchmarks: all matrices repeat one block
// of random bf16 numbers, and all norms are ones, so it takes as much memory as its largest
// matrix. Its output is meaningless, its ID is the same for all shapes, and it has no
// tokenizer.
func Repeated(c *Config, seed uint64) *Model {
	m := &Model{config: c, id: "repeated", layers: make([]Layer, c.Layers)}
	slots := m.slots()
	most := 0
	for _, s := range slots {
		most = max(most, product(s.shape))
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
	for _, s := range slots {
		from := data
		if len(s.shape) == 1 && 2*s.shape[0] <= len(ones) {
			from = ones
		}
		*s.dst = &Tensor{Name: s.name, DType: kv.BF16, Shape: s.shape, Data: from[:2*product(s.shape)]}
	}
	if c.TiedHead {
		m.head = m.embed
	}
	return m
}

// Zeros returns an in-memory model of shape c for plans of memory, and for devices that make weights
// themselves: all matrices are zeros of type t, and all vectors are ones. It has no tokenizer. The rows of
// all matrices must be whole blocks of t.
func Zeros(c *Config, t gguf.Type) *Model {
	m := &Model{config: c, id: "zeros", layers: make([]Layer, c.Layers)}
	slots := m.slots()
	most := 0
	for _, s := range slots {
		most = max(most, product(s.shape))
	}
	data := make([]byte, t.Bytes(most))
	ones := bytes.Repeat([]byte{0x80, 0x3f}, max(c.Hidden, c.HeadDim))
	for _, s := range slots {
		*s.dst = &Tensor{Name: s.name, Shape: s.shape}
		if n := product(s.shape); len(s.shape) > 1 {
			(*s.dst).Quant, (*s.dst).Data = t, data[:t.Bytes(n)]
		} else {
			(*s.dst).DType, (*s.dst).Data = kv.BF16, ones[:2*n]
		}
	}
	if c.TiedHead {
		m.head = m.embed
	}
	return m
}
