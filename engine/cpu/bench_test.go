package cpu

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model/random"
)

// work returns the least work for a row of tokens from position 0 on with one sample:
// multiplications and additions, and the bytes of all weights, read once.
func work(be *Backend, tokens int) (flops, bytes float64) {
	c, w := be.step.config, be.step.w
	params := 0
	for i := range w.layers {
		l := &w.layers[i]
		for _, m := range []*matrix{l.qkv, l.o, l.gateUp, l.down} {
			params += m.n * m.k
		}
	}
	head := w.head.n * w.head.k
	pairs := tokens * (tokens + 1) / 2 * c.Layers * c.Heads
	return 2*float64(params*tokens+head) + 4*float64(pairs*c.HeadDim), 2 * float64(params+head)
}

// BenchmarkSmall runs the 100M-parameter model on each path: a prompt of 512 tokens, and one
// decode step at a context of 100 for 1 and 16 sequences. Each is compared with the ceilings
// measured in the same run.
func BenchmarkSmall(b *testing.B) {
	m := testModel(b, random.Small)
	for _, isa := range ISAs()[1:] {
		b.Setenv(ISAVariable, isa.String())
		ceilings := MeasureCeilings("", runtime.GOMAXPROCS(0))
		be := openTest(b, m, Config{KVTokens: 4096, ISA: isa})
		seq := uint64(0)
		tokens := randomTokens(3, 512, m.Config().Vocab)
		b.Run(fmt.Sprintf("isa=%s/prefill=512", isa), func(b *testing.B) {
			for b.Loop() {
				seq++
				wait(b, be, &engine.Batch{Seq: seq, Rows: []engine.Row{{Tokens: tokens, Pages: pageRange(0, 32), Sample: true}}})
			}
			flops, _ := work(be, 512)
			seconds := b.Elapsed().Seconds() / float64(b.N)
			b.ReportMetric(512/seconds, "tok/s")
			b.ReportMetric(100*flops/seconds/1e9/ceilings.GFlops, "%ceiling")
		})
		for _, rows := range []int{1, 16} {
			b.Run(fmt.Sprintf("isa=%s/decode=%d", isa, rows), func(b *testing.B) {
				batch := &engine.Batch{}
				for r := range rows {
					batch.Rows = append(batch.Rows, engine.Row{Slot: engine.Slot(r), Tokens: tokens[:1], Pages: pageRange(8*r, 1), Sample: true})
				}
				seq++
				batch.Seq = seq
				wait(b, be, batch)
				for r := range batch.Rows {
					row := &batch.Rows[r]
					row.Start, row.Deferred, row.Tokens, row.Pages = 100, true, nil, pageRange(8*r, 7)
				}
				for b.Loop() {
					seq++
					batch.Seq = seq
					wait(b, be, batch)
				}
				_, bytes := work(be, 1)
				seconds := b.Elapsed().Seconds() / float64(b.N)
				b.ReportMetric(float64(rows)/seconds, "tok/s")
				b.ReportMetric(seconds*ceilings.GBs*1e9/bytes, "x-bound")
			})
		}
	}
}
