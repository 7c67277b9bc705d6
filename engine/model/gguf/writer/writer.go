// Package writer writes GGUF files: the header, and values in the block formats of package gguf, by plain rules that are good
// enough for models with random weights. It never opens a file and keeps nothing between calls.
//
//	header, err := writer.Header(pairs, tensors)
//	out.Write(header)
//	for _, t := range tensors {
//		writer.Quantize(t.Type, data, values) // data: t.Type.Bytes(len(values))
//		out.Write(data)
//		out.Write(make([]byte, writer.Padding(len(data))))
//	}
package writer

import (
	"encoding/binary"
	"fmt"

	"github.com/coppice-llm/coppice/engine/model/gguf"
)

const (
	version = 3
	align   = 32 // of the values of a tensor, in bytes; files need not state it
	maxAxes = 4  // of a tensor, as in ggml
)

// Pair is a metadata value to write: a uint32, uint64, int32, float32, bool, string, []string,
// []int32 or []float32.
type Pair struct {
	Key   string
	Value any
}

// Header returns the beginning of a file of version 3 with the pairs, in their order, and a
// table of tensors, whose Data are ignored. The tensors' values must follow in the same order,
// each padded by [Padding], so that values begin at multiples of 32. It fails for a value of
// another type, and for a row that is not whole blocks.
func Header(pairs []Pair, tensors []gguf.Tensor) ([]byte, error) {
	le := binary.LittleEndian
	out := append([]byte("GGUF"), version, 0, 0, 0)
	out = le.AppendUint64(out, uint64(len(tensors)))
	out = le.AppendUint64(out, uint64(len(pairs)))
	var err error
	for _, p := range pairs {
		out = appendText(out, p.Key)
		if out, err = appendValue(out, p.Value); err != nil {
			return nil, fmt.Errorf("writer: metadata %q: %w", p.Key, err)
		}
	}
	offset := 0
	for _, t := range tensors {
		values := 1
		for _, n := range t.Shape {
			values *= n
		}
		if !t.Type.Known() || len(t.Shape) == 0 || len(t.Shape) > maxAxes || t.Shape[len(t.Shape)-1]%t.Type.BlockValues() != 0 {
			return nil, fmt.Errorf("writer: tensor %q of %v can't have shape %v", t.Name, t.Type, t.Shape)
		}
		out = appendText(out, t.Name)
		out = le.AppendUint32(out, uint32(len(t.Shape)))
		for i := len(t.Shape) - 1; i >= 0; i-- {
			out = le.AppendUint64(out, uint64(t.Shape[i]))
		}
		out = le.AppendUint32(out, uint32(t.Type))
		out = le.AppendUint64(out, uint64(offset))
		offset += t.Type.Bytes(values)
		offset += Padding(offset)
	}
	return append(out, make([]byte, Padding(len(out)))...), nil
}

// Padding returns the number of zeros to write after n bytes.
func Padding(n int) int { return -n & (align - 1) }

func appendText(out []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(out, uint64(len(s))), s...)
}

func appendValue(out []byte, value any) ([]byte, error) {
	le := binary.LittleEndian
	kind := func(k gguf.Kind) { out = le.AppendUint32(out, uint32(k)) }
	array := func(k gguf.Kind, n int) {
		kind(gguf.Array)
		kind(k)
		out = le.AppendUint64(out, uint64(n))
	}
	switch v := value.(type) {
	case uint32:
		kind(gguf.Uint32)
	case uint64:
		kind(gguf.Uint64)
	case int32:
		kind(gguf.Int32)
	case float32:
		kind(gguf.Float32)
	case bool:
		kind(gguf.Bool)
	case []int32:
		array(gguf.Int32, len(v))
	case []float32:
		array(gguf.Float32, len(v))
	case string:
		kind(gguf.String)
		return appendText(out, v), nil
	case []string:
		array(gguf.String, len(v))
		for _, s := range v {
			out = appendText(out, s)
		}
		return out, nil
	default:
		return nil, fmt.Errorf("a value of %T can't be written", value)
	}
	return binary.Append(out, le, value)
}
