package cpu

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/engine/model/gguf/writer"
	"github.com/coppice-llm/coppice/kv"
)

// rowsBenchBytes is the size of the weights that BenchmarkFewRows goes round: more than the caches hold.
const rowsBenchBytes = 384 << 20

// BenchmarkFewRows measures what more rows add to a product whose weights come from memory, as in the
// verification of drafted tokens. It computes products as a step does, with the quantising of the
// activations and on all processors, for the shapes of a model of 1.5B parameters. Each iteration also
// computes a product of one row, and x-one-row is the ratio of both times. Both are the least of all
// iterations, since other load on the machine can only add to a time.
func BenchmarkFewRows(b *testing.B) {
	rows := []int{1, 2, 3, 4, 5, 8, 9, 16, 32, 64}
	for _, typ := range []gguf.Type{gguf.Q4_K, gguf.Q5_K, gguf.Q6_K, gguf.Q8_0, gguf.Q4_0, gguf.Q4_1, gguf.BF16, gguf.F16, gguf.F32} {
		for _, shape := range [][2]int{{1536, 1536}, {1536, 8960}, {8960, 1536}} {
			var products *rowsBench
			for _, ops := range productPaths()[1:] {
				for _, n := range rows {
					b.Run(fmt.Sprintf("isa=%s/type=%v/k=%d/n=%d/rows=%d", ops.isa, typ, shape[0], shape[1], n), func(b *testing.B) {
						if products == nil {
							products = newRowsBench(b, ops, typ, shape[0], shape[1])
						}
						products.run(b, ops, n)
					})
				}
			}
			products.close()
		}
	}
}

// rowsBench holds copies of one matrix, enough to exceed the caches, and the rows to multiply.
type rowsBench struct {
	layers []matrix
	store  interface{ Close() error }
	next   int // layer
	rows   [][]float32
}

func newRowsBench(b *testing.B, ops *kernels, typ gguf.Type, k, n int) *rowsBench {
	r := rand.New(rand.NewPCG(1, uint64(k)))
	weights := make([]float32, 64*k)
	for i := range weights {
		weights[i] = float32(r.NormFloat64())
	}
	tensor := &model.Tensor{Name: "w", Shape: []int{n, k}}
	switch {
	case formats[typ] != nil:
		tensor.Quant, tensor.Data = typ, make([]byte, typ.Bytes(len(weights)))
		writer.Quantize(typ, tensor.Data, weights)
	default:
		tensor.DType = map[gguf.Type]kv.DType{gguf.F32: kv.F32, gguf.F16: kv.F16, gguf.BF16: kv.BF16}[typ]
		tensor.Data = make([]byte, tensor.DType.Size(len(weights)))
		if tensor.DType == kv.F32 {
			copy(tensor.Data, unsafe.Slice((*byte)(unsafe.Pointer(&weights[0])), 4*len(weights)))
		} else {
			encodeRow(tensor.DType, tensor.Data, weights)
		}
	}
	tensor.Data = slices.Repeat(tensor.Data, n/64)
	p := packer{kernels: ops}
	one := p.pack(k, tensor)
	if p.err != nil {
		b.Fatal(p.err)
	}
	defer one.store.Close()
	words := one.store.F32()
	store, err := reserve(rowsBenchBytes / 4)
	if err != nil {
		b.Fatal(err)
	}
	out := &rowsBench{store: store}
	for room := store.F32(); len(room) >= len(words); room = room[len(words):] {
		copy(room, words)
		m, at := *one, unsafe.Pointer(unsafe.SliceData(room))
		switch {
		case m.quant != nil:
			data := unsafe.Slice((*byte)(at), 4*len(words))
			m.quant = slices.Clone(m.quant)
			for i := range m.quant {
				size := m.quant[i].format.panelBytes(k)
				m.quant[i] = newQuantPanel(m.quant[i].format, m.quant[i].order, k, data[:size:size])
				data = data[size:]
			}
		case m.words != nil:
			m.words = unsafe.Slice((*uint32)(at), len(m.words))
		default:
			m.panels = room[:len(m.panels)]
		}
		out.layers = append(out.layers, m)
	}
	for range 64 {
		row := make([]float32, k)
		for i := range row {
			row[i] = float32(r.NormFloat64())
		}
		out.rows = append(out.rows, row)
	}
	return out
}

func (p *rowsBench) close() {
	if p != nil {
		p.store.Close()
	}
}

// run measures products of n rows on the path of ops.
func (p *rowsBench) run(b *testing.B, ops *kernels, n int) {
	m, quantized := &p.layers[0], p.layers[0].quant != nil
	s := &step{ops: ops, acts: newActs(ops, len(p.rows), m.k, quantized, quantized), scratch: make([]scratch, runtime.GOMAXPROCS(0))}
	for i := range s.scratch {
		s.scratch[i] = *newScratch()
	}
	s.crew = newWorkers(len(s.scratch), spins, s.unit)
	defer s.crew.close()
	out := make([]float32, len(p.rows)*m.stride())
	product := func(rows int) float64 {
		p.next = (p.next + 1) % len(p.layers)
		start := time.Now()
		for r := range rows {
			s.acts.set(r, p.rows[r])
		}
		s.rows = rows
		s.product(&p.layers[p.next], out)
		return float64(time.Since(start).Nanoseconds())
	}
	product(n)
	var one, few []float64
	for b.Loop() {
		one, few = append(one, product(1)), append(few, product(n))
	}
	bytes := 0
	for _, q := range m.quant {
		bytes += len(q.supers) + len(q.data)
	}
	bytes += 4 * (len(m.words) + len(m.panels))
	reportRows(b, one, few, bytes)
}

// reportRows reports the least time of few, the bytes read in it, and its ratio to the least of one.
func reportRows(b *testing.B, one, few []float64, bytes int) {
	took := slices.Min(few)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(took, "ns")
	b.ReportMetric(float64(bytes)/took, "GB/s")
	b.ReportMetric(took/slices.Min(one), "x-one-row")
}

// BenchmarkFewRowsOfModels is BenchmarkFewRows for whole steps of the GGUF files in the directory that
// COPPICE_MODELS names: a step has rows tokens of one sequence and samples once.
func BenchmarkFewRowsOfModels(b *testing.B) {
	files, _ := filepath.Glob(filepath.Join(os.Getenv("COPPICE_MODELS"), "*.gguf"))
	if os.Getenv("COPPICE_MODELS") == "" || len(files) == 0 {
		b.Skip("COPPICE_MODELS names no directory with GGUF files")
	}
	for _, file := range files {
		m, err := model.Open(file)
		if err != nil {
			b.Fatal(err)
		}
		for _, isa := range ISAs()[1:] {
			benchmarkSteps(b, m, isa, strings.TrimSuffix(filepath.Base(file), ".gguf"))
		}
		m.Close()
	}
}

func benchmarkSteps(b *testing.B, m *model.Model, isa ISA, name string) {
	var be *Backend
	defer func() {
		if be != nil {
			listings.Delete(be)
			be.Close()
		}
	}()
	const most = 64
	seq := uint64(0)
	for _, start := range []int{500, 2000} {
		tokens := randomTokens(3, start+most, m.Config().Vocab)
		step := func(b *testing.B, from, to int) float64 {
			seq++
			row := engine.Row{Tokens: tokens[from:to], Start: int32(from), Pages: pageRange(0, kv.CeilPages(start+most, 16)), Sample: true}
			began := time.Now()
			wait(b, be, &engine.Batch{Seq: seq, Rows: []engine.Row{row}})
			return float64(time.Since(began).Nanoseconds())
		}
		filled := false
		for _, n := range []int{1, 2, 3, 4, 5, 8, 9, 16, 32, most} {
			b.Run(fmt.Sprintf("model=%s/isa=%s/start=%d/rows=%d", name, isa, start, n), func(b *testing.B) {
				if be == nil {
					var err error
					if be, err = Open(m, Config{KVTokens: 4096, ISA: isa}); err != nil {
						b.Fatal(err)
					}
					listings.Store(be, engine.Listed(be)) // for longer than one benchmark
				}
				if !filled {
					filled = true
					for at := 0; at < start; at += 100 {
						step(b, at, at+100)
					}
				}
				var one, few []float64
				for b.Loop() {
					one, few = append(one, step(b, start, start+1)), append(few, step(b, start, start+n))
				}
				reportRows(b, one, few, be.Work().WeightBytes)
			})
		}
	}
}
