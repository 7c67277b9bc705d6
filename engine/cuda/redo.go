package cuda

import (
	"slices"

	"github.com/coppice-llm/coppice/engine"
)

// redo has the changes of steps that were given up for lack of memory, and whose rows have failed. The
// next step makes these changes first, so that rows of other batches find what they rely on. Kernels of
// the steps may have run: making a change twice does no harm.
type redo struct {
	binds  []engine.SlotBind // of slots without rows in their batch
	failed []engine.Slot     // slots of rows: a row that defers to their last token fails too
	copies []engine.PageCopy
	masks  []engine.MaskSet
	tables bool // the device may lack entries of page tables
}

// giveUp notes what the planned batch b should have changed on the device. It copies what it keeps.
func (p *planner) giveUp(b *engine.Batch) {
	r := &p.redo
	for i := range b.Rows {
		slot := b.Rows[i].Slot
		r.failed = append(r.failed, slot)
		p.kept[slot] = 0
	}
	for _, bind := range b.Binds {
		if !slices.Contains(r.failed, bind.Slot) {
			bind.Prompt, bind.Output, bind.Sampling.Bias = slices.Clone(bind.Prompt), slices.Clone(bind.Output), slices.Clone(bind.Sampling.Bias)
			r.binds = append(r.binds, bind)
		}
	}
	r.copies = append(r.copies, b.Copies...)
	for _, m := range b.Masks {
		r.masks = append(r.masks, engine.MaskSet{ID: m.ID, Bits: slices.Clone(m.Bits)})
	}
	r.tables = true
	for i := range p.table {
		p.table[i] = -1
	}
}
