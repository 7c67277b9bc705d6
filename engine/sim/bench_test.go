package sim

import (
	"fmt"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// decoding returns a bed with a simulated H200 and that many running sequences, and a batch that
// decodes one token of each. next submits the batch and moves it on by one token.
func decoding(t testing.TB, rows int, mode Mode) (d *bed, b *engine.Batch, next func()) {
	p, err := ProfileByName("h200")
	if err != nil {
		t.Fatal(err)
	}
	const context, room = 1024, 128
	d = newBed(t, Config{Profile: p, PageTokens: 16, Sanitize: mode, Vocab: 1000})
	b = &engine.Batch{}
	tables := make([][]kv.PageID, rows)
	for i := range rows {
		for j := range (context + room) / 16 {
			tables[i] = append(tables[i], kv.PageID(j*rows+i))
		}
		r := prefill(engine.Slot(i), tokens(i%100, context-224), tables[i][:(context-224)/16]...)
		d.run(engine.Batch{Rows: []engine.Row{r}})
	}
	start := int32(context - 224)
	reset := func() {
		b.Rows = b.Rows[:0]
		for i := range rows {
			b.Rows = append(b.Rows, deferred(engine.Slot(i), start, tables[i][start/16:start/16+1]...))
		}
	}
	reset()
	return d, b, func() {
		d.seq++
		b.Seq = d.seq
		if _, err := d.b.Submit(b); err != nil {
			t.Fatal(err)
		}
		for d.clock.Step() {
		}
		for i := range b.Rows {
			r := &b.Rows[i]
			r.Start++
			r.SampleIndex++
			if r.Pages = nil; r.Start%16 == 0 {
				r.Pages = tables[i][r.Start/16 : r.Start/16+1]
			}
		}
		if int(b.Rows[0].Start) == context+room {
			binds := engine.Batch{}
			for i := range rows {
				binds.Binds = append(binds.Binds, engine.SlotBind{Slot: engine.Slot(i), Pages: tables[i][:start/16]})
				binds.Rows = append(binds.Rows, engine.Row{Slot: engine.Slot(i), Start: start - 1, Tokens: tokens(i%100+int(start)-1, 1),
					Sample: true})
			}
			d.seq++
			binds.Seq = d.seq
			if _, err := d.b.Submit(&binds); err != nil {
				t.Fatal(err)
			}
			for d.clock.Step() {
			}
			reset()
		}
	}
}

func BenchmarkSubmit(b *testing.B) {
	for _, mode := range allModes {
		for _, rows := range []int{1, 256} {
			b.Run(fmt.Sprintf("mode=%v/rows=%d", mode, rows), func(b *testing.B) {
				_, _, next := decoding(b, rows, mode)
				b.ReportAllocs()
				for b.Loop() {
					next()
				}
			})
		}
	}
}

// TestSubmitAllocations bounds the allocations of a step, however many rows it has: the ticket,
// the outputs and the event.
func TestSubmitAllocations(t *testing.T) {
	for _, mode := range allModes {
		_, _, next := decoding(t, 64, mode)
		next()
		if n := testing.AllocsPerRun(50, next); n > 4 {
			t.Errorf("mode %v: %v allocations a step, want at most 4", mode, n)
		}
	}
}
