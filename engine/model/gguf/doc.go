// Package gguf owns the GGUF file format: it reads and writes metadata and tensor
// tables, and turns block-quantised values into f32. It never opens a file, knows no
// model and computes nothing with weights.
//
//	f, err := gguf.Parse(data) // a mapped file
//	if err != nil {
//		return err // with the offset at fault
//	}
//	arch, _ := f.Meta.String("general.architecture")
//	for _, t := range f.Tensors {
//		row := make([]float32, t.Shape[len(t.Shape)-1])
//		gguf.Dequantize(t.Type, row, t.Data)
//	}
//
// Versions 2 and 3 are read, little-endian, in one file; what a file says of parts
// is its caller's to follow. Files may be hostile: every count, length and offset is
// checked against the bytes that are left before anything is allocated for it, so
// that memory is at most a small multiple of the file's size.
//
// A File may be used from any goroutine. Tensor data and nothing else aliases what
// was parsed.
//
// Sources: ggml's document of the container, ggml-common.h and ggml-quants.c
// for the blocks. The values are those of PyPI's gguf, bit for bit.
package gguf
