package cpu

import (
	"fmt"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/gguf/writer"
)

// BenchmarkQuantizedProducts multiplies rows by 67 M weights of each type on each path, with one
// thread. One row reads them from memory.
func BenchmarkQuantizedProducts(b *testing.B) {
	const k, n, most = 2048, 32768, 96
	for _, typ := range quantTypes() {
		weights := make([]float32, 64*k)
		for i := range weights {
			weights[i] = float32(i*i%1009) - 504
		}
		data := make([]byte, typ.Bytes(len(weights)))
		writer.Quantize(typ, data, weights)
		tensor := &model.Tensor{Name: "w", Shape: []int{n, k}, Quant: typ, Data: slices.Repeat(data, n/64)}
		for _, ops := range productPaths()[1:] {
			p := packer{kernels: ops}
			m := p.pack(k, tensor)
			a, out := newActs(ops, most, k, true, true), make([]float32, most*n)
			for r := range most {
				a.set(r, weights[r%64*k:][:k])
			}
			w := newScratch()
			for _, rows := range []int{1, 2, 8, most} {
				b.Run(fmt.Sprintf("type=%v/isa=%s/rows=%d", typ, ops.isa, rows), func(b *testing.B) {
					for b.Loop() {
						for panel := range m.panelCount() {
							ops.productPanel(w, out, a, m, panel, 0, rows)
						}
					}
					b.ReportMetric(float64(rows*n*k*b.N)/b.Elapsed().Seconds()/1e9, "Gweights/s")
				})
			}
			m.store.Close()
		}
	}
}

// BenchmarkQuantizedPanel multiplies rows by one panel, 64 columns over k = 1536, which stays in the second-level
// cache. With -benchtime 1x and tools/emulate/count.py it counts the instructions of a kernel.
func BenchmarkQuantizedPanel(b *testing.B) {
	const k, most = 1536, quantRows
	for _, typ := range quantTypes() {
		tensor := &model.Tensor{Name: "w", Shape: []int{vectorCols, k}, Quant: typ, Data: make([]byte, typ.Bytes(vectorCols*k))}
		for _, ops := range productPaths()[1:] {
			p := packer{kernels: ops}
			m := p.pack(k, tensor)
			a, out, w := newActs(ops, most, k, true, true), make([]float32, most*vectorCols), newScratch()
			for _, rows := range []int{1, most} {
				b.Run(fmt.Sprintf("type=%v/isa=%s/rows=%d", typ, ops.isa, rows), func(b *testing.B) {
					for b.Loop() {
						ops.productPanel(w, out, a, m, 0, 0, rows)
					}
				})
			}
			m.store.Close()
		}
	}
}
