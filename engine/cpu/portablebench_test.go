package cpu

import (
	"fmt"
	"testing"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/gguf/writer"
	"github.com/coppice-llm/coppice/internal/f32"
	"github.com/coppice-llm/coppice/kv"
)

// BenchmarkPortable multiplies rows by 589,824 weights on the portable path, with one thread: bf16
// weights and weights of each quantised type.
func BenchmarkPortable(b *testing.B) {
	const k, n, most = 768, 768, 64
	values := make([]float32, n*k)
	for i := range values {
		values[i] = float32(i*i%1009-504) / 3000
	}
	run := func(name string, tensor *model.Tensor) {
		p := packer{kernels: portable}
		m := p.pack(k, tensor)
		quantized := m.quant != nil
		a, out := newActs(portable, most, k, quantized, quantized), make([]float32, most*m.stride())
		for r := range most {
			a.set(r, values[r*k:][:k])
		}
		w := newScratch()
		for _, rows := range []int{1, 8, most} {
			b.Run(fmt.Sprintf("type=%s/rows=%d", name, rows), func(b *testing.B) {
				for b.Loop() {
					for panel := range m.panelCount() {
						portable.productPanel(w, out, a, m, panel, 0, rows)
					}
				}
				b.ReportMetric(float64(rows*n*k*b.N)/b.Elapsed().Seconds()/1e9, "Gweights/s")
			})
		}
	}
	words := make([]byte, 2*len(values))
	for i, v := range values {
		h := f32.ToBF16(v)
		words[2*i], words[2*i+1] = byte(h), byte(h>>8)
	}
	run("BF16", &model.Tensor{Name: "w", Shape: []int{n, k}, DType: kv.BF16, Data: words})
	for _, typ := range quantTypes() {
		data := make([]byte, typ.Bytes(len(values)))
		writer.Quantize(typ, data, values)
		run(typ.String(), &model.Tensor{Name: "w", Shape: []int{n, k}, Quant: typ, Data: data})
	}
}

func newScratch() *scratch { return &scratch{tile: make([]float32, spanRows*vectorCols)} }
