package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/coppice-llm/coppice/engine/enginetest"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/engine/model/gguf/writer"
	"github.com/coppice-llm/coppice/engine/model/random"
)

// quantTypes returns the types that are multiplied in integers.
func quantTypes() []gguf.Type {
	var out []gguf.Type
	for _, t := range gguf.Types() {
		if formats[t] != nil {
			out = append(out, t)
		}
	}
	return out
}

func TestEveryBlockTypeHasProducts(t *testing.T) {
	for _, typ := range gguf.Types() {
		if (typ.SubBlock() > 0) != (formats[typ] != nil) {
			t.Errorf("%v has a format: %v", typ, formats[typ] != nil)
		}
	}
}

// A panel takes as many bits a weight as docs/models.md says, and Work counts all of them.
func TestPanelSizes(t *testing.T) {
	for _, c := range []struct {
		typ  gguf.Type
		bits float64
	}{
		{gguf.Q4_0, 4.5}, {gguf.Q4_1, 5}, {gguf.Q5_0, 5.5}, {gguf.Q5_1, 6}, {gguf.Q8_0, 8.5},
		{gguf.Q4_K, 4.625}, {gguf.Q5_K, 5.625}, {gguf.Q6_K, 6.5625}, {gguf.IQ4_NL, 4.5}, {gguf.MXFP4, 5},
	} {
		const k = 1024
		if got := float64(8*formats[c.typ].panelBytes(k)) / (k * vectorCols); got != c.bits {
			t.Errorf("%v takes %v bits a weight, want %v", c.typ, got, c.bits)
		}
		w := openTest(t, ggufModel(t, random.Spec{Preset: random.Mini, Seed: 3}, c.typ), Config{KVTokens: 64}).Work()
		if want := int(float64(w.LayerParams+w.HeadParams) * c.bits / 8); w.WeightBytes != want {
			t.Errorf("%v: %d bytes of weights, want %d", c.typ, w.WeightBytes, want)
		}
	}
}

// Models of every type give the twin's bits, for several threads, pages and chunks.
func TestQuantizedTwin(t *testing.T) {
	for i, typ := range quantTypes() {
		arch := model.Archs()[i%len(model.Archs())]
		t.Run(fmt.Sprintf("%v %s", typ, arch), func(t *testing.T) {
			m := ggufModel(t, random.Spec{Preset: random.Mini, Arch: arch, Seed: 3}, typ)
			againstTwin(t, m)
		})
	}
}

// A quantised model's logits stay as close to those of its widened weights as activations of
// eight bits allow.
func TestQuantizedIsCloseToWidened(t *testing.T) {
	for _, typ := range quantTypes() {
		m := ggufModel(t, random.Spec{Preset: random.Mini, Seed: 3}, typ)
		c := m.Config()
		rng := rand.New(rand.NewPCG(9, 1730))
		x := make([]float32, c.Hidden)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		exact := widen(m.Layers()[0].Gate)
		got := twinQuantMul(m.Layers()[0].Gate, x)[0]
		var diff, power float64
		for r, v := range got {
			sum := 0.0
			for k, a := range x {
				sum += float64(a) * float64(exact[r*c.Hidden+k])
			}
			diff += (sum - float64(v)) * (sum - float64(v))
			power += sum * sum
		}
		if rel := math.Sqrt(diff / power); !(rel < 8e-3) {
			t.Errorf("%v: off by %.2g", typ, rel)
		}
	}
}

// The conformance suite passes for models with quantised weights, on any path.
func TestConformanceOfQuantizedModels(t *testing.T) {
	for i, typ := range []gguf.Type{gguf.Q4_K, gguf.Q6_K} {
		t.Run(typ.String(), func(t *testing.T) {
			m := ggufModel(t, random.Spec{Preset: random.Mini, Arch: model.Archs()[i], Seed: 3}, typ)
			enginetest.Run(t, varied(m), "seed", "penalties", "mask", "bias", "logprobs", "validation", "busy", "close", "stats")
		})
	}
}

// All paths give the same bits for products of every type, including rows and columns that do not fill
// a panel or a call, and a panel that takes several calls.
func TestQuantizedProductsAreTheSameOnAllPaths(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1730))
	for _, typ := range quantTypes() {
		const k, n, rows = 1536, 100, quantRows + 2
		weights := make([]float32, n*k)
		for i := range weights {
			weights[i] = float32(rng.NormFloat64())
		}
		tensor := &model.Tensor{Name: "w", Shape: []int{n, k}, Quant: typ, Data: make([]byte, typ.Bytes(n*k))}
		writer.Quantize(typ, tensor.Data, weights)
		x := make([][]float32, rows)
		for r := range x {
			x[r] = make([]float32, k)
			for i := range x[r] {
				x[r][i] = float32(rng.NormFloat64() * math.Exp(4*rng.NormFloat64()))
			}
		}
		clear(x[3][32:64])
		for i := range x[4][:64] {
			x[4][i] = float32(math.Copysign(1, float64(i%2)-0.5)) // every q is ±127
		}
		want := twinQuantMul(tensor, x...)
		for _, ops := range productPaths() {
			isa := ops.isa
			p := packer{kernels: ops}
			m := p.pack(k, tensor)
			if p.err != nil || m.quant == nil {
				t.Fatal(p.err, m.quant)
			}
			a := newActs(ops, rows, k, true, true)
			for r := range x {
				a.set(r, x[r])
			}
			for _, hi := range []int{1, 2, 3, 4, strideRows + 1, 6, 7, quantRows, rows} {
				out := make([]float32, rows*m.stride())
				for panel := range m.panelCount() {
					ops.productPanel(newScratch(), out, a, m, panel, 0, hi)
				}
				for r := range hi {
					for c, want := range want[r] {
						if got := out[r*m.stride()+c]; math.Float32bits(got) != math.Float32bits(want) {
							t.Fatalf("%v on %s, %d rows: row %d, column %d is %v, want %v", typ, isa, hi, r, c, got, want)
						}
					}
				}
			}
			m.store.Close()
		}
	}
}

// The bits of the logits of each type are pinned. A change that alters them must change
// QuantNumericsID.
func TestQuantizedBitsArePinned(t *testing.T) {
	want := map[gguf.Type]uint64{
		gguf.Q4_0:   0xd4d9b9a7fbd14217,
		gguf.Q4_1:   0xf6b04d7660dbb3aa,
		gguf.Q5_0:   0x646f7f6b2bc5f97e,
		gguf.Q5_1:   0x65fc52609d8f2f50,
		gguf.Q8_0:   0x665df9f31e54a062,
		gguf.Q4_K:   0x748755d5dee12b97,
		gguf.Q5_K:   0x47c881fcb57a0e54,
		gguf.Q6_K:   0x529270edd69eb708,
		gguf.IQ4_NL: 0x2f7158b4ad427a8a,
		gguf.MXFP4:  0x12846590dc8f1cf7,
	}
	for _, typ := range quantTypes() {
		m := ggufModel(t, random.Spec{Preset: random.Mini, Seed: 3}, typ)
		if got := promptDigest(t, m); got != want[typ] {
			t.Errorf("gguf.%v: 0x%x,", typ, got)
		}
	}
	if b := openTest(t, ggufModel(t, random.Spec{Preset: random.Mini, Seed: 3}, gguf.Q4_K), Config{KVTokens: 64}); b.Info().NumericsID != QuantNumericsID {
		t.Errorf("NumericsID %s", b.Info().NumericsID)
	}
}

// All paths write the same records as the portable path, whatever the values.
func TestRecordsAreTheSameOnAllPaths(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1730))
	const blocks = 64
	row := make([]float32, blocks*quantBlock)
	for trial := range 200 {
		for b := range blocks {
			block, size := row[b*quantBlock:(b+1)*quantBlock], math.Exp(20*rng.NormFloat64())
			for i := range block {
				block[i] = float32(size * rng.NormFloat64())
				if trial%2 == 1 { // halves are ties
					block[i] = float32(rng.IntN(255)-127) / 2
				}
			}
			switch at := rng.IntN(quantBlock); rng.IntN(8) {
			case 0:
				clear(block)
			case 1:
				block[at] = float32(math.NaN())
			case 2:
				block[at] = float32(math.Inf(at%2*2 - 1))
			case 3:
				clear(block)
				block[at] = float32(math.Copysign(127*leastScale*(0.99+0.02*rng.Float64()), rng.NormFloat64()))
			case 4:
				block[at] = math.MaxFloat32
			}
		}
		want := make([]byte, blocks*recordBytes)
		portable.quantizeRow(want, row)
		for _, isa := range ISAs() {
			got := bytes.Repeat([]byte{0xa5}, len(want))
			kernelsOf(isa).quantizeRow(got, row)
			for b := range blocks {
				lo, hi := b*recordBytes, (b+1)*recordBytes
				if !bytes.Equal(got[lo:hi], want[lo:hi]) {
					t.Fatalf("%s: %v\n%v, want\n%v", isa, row[b*quantBlock:(b+1)*quantBlock], got[lo:hi], want[lo:hi])
				}
			}
		}
	}
}

// A block with a value that is not finite gets NaN as its d, so that its row fails; the row's
// other blocks keep theirs.
func TestQuantizedNotFinite(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		row := make([]float32, 64)
		row[40] = float32(v)
		records := make([]byte, 2*recordBytes)
		portable.quantizeRow(records, row)
		if d := recordFloat(records[recordBytes:], recordD); d == d {
			t.Errorf("%v has scale %v", v, d)
		}
		if d := recordFloat(records, recordD); d != 0 {
			t.Errorf("the block beside %v has scale %v", v, d)
		}
	}
}
