// Package gguf owns the GGUF file format: it reads metadata and tensor tables, and
// dequantises block-quantised values to f32. It never opens a file, knows no model and
// computes nothing with weights. Package gguf/writer writes such files.
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
// It reads versions 2 and 3, little-endian, in one file; following the further parts
// of a split file is up to the caller. Files may be hostile: every count, length and
// offset is checked against the remaining bytes before anything is allocated for it,
// so that memory is at most a small multiple of the file's size.
//
// A File may be used from any goroutine. Only tensor data alias the parsed bytes.
//
// Sources: ggml's document of the container, ggml-common.h and ggml-quants.c
// for the blocks. The values are those of PyPI's gguf, bit for bit.
package gguf
