package cpu

import (
	"errors"
	"fmt"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/kv"
)

// TestDraftThatIsNotFinite drafts a token whose embedding is NaN: the row fails if the token is confirmed,
// as the next row of a run without drafts would, and not if it is refused.
func TestDraftThatIsNotFinite(t *testing.T) {
	b := openTest(t, testModel(t, random.Nano), Config{KVTokens: 64})
	const bad = kv.Token(70)
	embed := b.step.w.embed
	row := embed.Data[int(bad)*len(embed.Data)/b.info.Vocab:][:len(embed.Data)/b.info.Vocab]
	for i := range row {
		row[i] = 0xff // NaN in all types
	}
	only := func(id engine.MaskID, t kv.Token) engine.MaskSet {
		bits := make([]uint64, b.info.MaskWords())
		bits[t/64] = 1 << (t % 64)
		return engine.MaskSet{ID: id, Bits: bits}
	}
	masks := []engine.MaskSet{only(1, bad), only(2, 3)}
	seq := uint64(0)
	run := func(mask engine.MaskID) *engine.RowOut {
		seq++
		return &wait(t, b, &engine.Batch{Seq: seq, Masks: masks, Binds: []engine.SlotBind{{}}, Rows: []engine.Row{
			{Tokens: randomTokens(1, 5, 64), Pages: pageRange(0, 1), Sample: true, Mask: mask, Drafts: []kv.Token{bad, 5, 6}}}}).Out[0]
	}
	if o := run(2); o.Err != nil || o.Token != 3 || o.Confirmed != 0 {
		t.Errorf("before a draft that is refused: token %d, %d drafts, %v; want 3 alone", o.Token, o.Confirmed, o.Err)
	}
	if o := run(1); !errors.Is(o.Err, engine.ErrLogits) || o.Confirmed != 0 {
		t.Errorf("after a draft that is confirmed: %v and %d drafts, want ErrLogits and none", o.Err, o.Confirmed)
	}
}

// BenchmarkDrafts runs decode steps of the 100M-parameter model with guesses, all of which are wrong:
// the time of drafts=0 is that of a plain step.
func BenchmarkDrafts(b *testing.B) {
	m := testModel(b, random.Small)
	be := openTest(b, m, Config{KVTokens: 4096})
	seq := uint64(0)
	for _, drafts := range []int{0, 1, 4, 8, 16} {
		b.Run(fmt.Sprintf("drafts=%d", drafts), func(b *testing.B) {
			row := engine.Row{Start: 100, Tokens: []kv.Token{1}, Pages: pageRange(0, 8), Sample: true, Drafts: randomTokens(9, drafts, 100)}
			for b.Loop() {
				seq++
				wait(b, be, &engine.Batch{Seq: seq, Binds: []engine.SlotBind{{}}, Rows: []engine.Row{row}})
			}
		})
	}
}
