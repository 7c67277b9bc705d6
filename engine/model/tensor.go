package model

import (
	"fmt"

	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/kv"
)

// Tensor is one weight in the form in which the file stores it.
type Tensor struct {
	Name  string
	DType kv.DType // F32, F16 or BF16; F32 if quantised
	Shape []int    // outermost first; empty for a scalar
	// Quant is the block format of Data, whose rows are whole blocks; gguf.F32, the zero value,
	// if Data are plain values of DType.
	Quant gguf.Type
	// Data is little-endian and row-major, at any alignment: Len()*DType.Bytes() bytes if the
	// values are plain. Usually it is a view of the mapped file, valid until Model.Close.
	Data []byte

	file string // path of its file, for messages
}

// Len returns the number of elements.
func (t *Tensor) Len() int {
	return len(t.Data) / t.format().BlockBytes() * t.format().BlockValues()
}

// Quantized reports whether Data are blocks of Quant.
func (t *Tensor) Quantized() bool { return t.Quant != gguf.F32 }

// Type returns the name of Data's format.
func (t *Tensor) Type() string {
	if t.Quantized() {
		return t.Quant.String()
	}
	return t.DType.String()
}

// format returns the format of Data.
func (t *Tensor) format() gguf.Type {
	switch {
	case t.DType == kv.F16:
		return gguf.F16
	case t.DType == kv.BF16:
		return gguf.BF16
	}
	return t.Quant
}

// Widen writes the elements [lo, hi) as f32 to dst[:hi-lo]. Every f16 and bf16 value is also an
// f32 value, so nothing is rounded; NaNs keep sign and payload. For quantised tensors the range
// must be whole blocks, as rows are. It panics if the range is invalid or dst is too short.
func (t *Tensor) Widen(dst []float32, lo, hi int) {
	if lo < 0 || hi < lo || hi > t.Len() || len(dst) < hi-lo {
		panic(fmt.Sprintf("model: Widen [%d, %d) of %q, %d elements, into %d", lo, hi, t.Name, t.Len(), len(dst)))
	}
	format := t.format()
	gguf.Dequantize(format, dst[:hi-lo], t.Data[format.Bytes(lo):format.Bytes(hi)])
}
