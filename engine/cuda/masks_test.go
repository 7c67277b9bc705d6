package cuda_test

import (
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda"
	"github.com/coppice-llm/coppice/engine/enginetest"
	"github.com/coppice-llm/coppice/kv"
)

// TestMasksAreUploadedOnce counts the bytes that a step uploads: setting a mask uploads its bits, and
// rows that name existing masks upload as much as rows without masks.
func TestMasksAreUploadedOnce(t *testing.T) {
	b := conform(t, enginetest.Options{PageTokens: 16, Pages: 16, MaxSlots: 4, MaxRows: 4, MaxTokens: 16, MaxInflight: 2}).(*cuda.Backend)
	defer b.Close()
	info := b.Info()
	bits := make([]uint64, info.MaskWords())
	bits[0] = 6
	seq := uint64(0)
	sent := func(masks []engine.MaskSet, named engine.MaskID) int {
		seq++
		x := &engine.Batch{Seq: seq, Masks: masks}
		for i := range 4 {
			if seq == 1 {
				x.Binds = append(x.Binds, engine.SlotBind{Slot: engine.Slot(i), Pages: []kv.PageID{kv.PageID(i)}})
			}
			x.Rows = append(x.Rows, engine.Row{Slot: engine.Slot(i), Tokens: []kv.Token{1}, Sample: true, Mask: named})
		}
		ticket, err := b.Submit(x)
		if err != nil {
			t.Fatal(err)
		}
		<-ticket.Done()
		res, err := ticket.Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range res.Out {
			if o.Err != nil || named != 0 && bits[0]>>o.Token&1 == 0 {
				t.Fatalf("row %d: token %d, %v", o.Row, o.Token, o.Err)
			}
		}
		return cuda.Uploaded(b)
	}
	sent(nil, 0)
	free := sent(nil, 0)
	set := sent([]engine.MaskSet{{ID: 1, Bits: bits}, {ID: 3, Bits: bits}, {ID: 2, Bits: bits}}, 3)
	again := sent(nil, 2)
	if want := free + 3*8*len(bits); set < want || set > want+16 {
		t.Errorf("a step that sets three masks uploads %d bytes, want %d; one without masks uploads %d", set, want, free)
	}
	if again != free {
		t.Errorf("a step of rows with existing masks uploads %d bytes, one without masks %d", again, free)
	}
}
