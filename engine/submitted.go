package engine

// Submitted tracks the state after all submitted batches, which may be ahead of the batches that
// have run: the number of pages in each slot's table, the slots that sample, and which masks are
// set. Batch.Validate needs it.
type Submitted struct {
	slots []submittedSlot
	masks []uint64 // by MaskID: Seq of the batch that set it; 0: not set

	slotsWere []slotWas // previous values, to undo a batch that is invalid
	masksWere []maskWas
}

type submittedSlot struct {
	pages   int32
	sampled bool   // a batch since the slot's bind samples
	drafted uint64 // Seq of the last batch with drafts in the slot since its bind; 0: none
	summed  int32  // positions in the slot's sum of hidden states
}

type slotWas struct {
	slot Slot
	submittedSlot
}

type maskWas struct {
	id  MaskID
	seq uint64
}

// NewSubmitted returns the state before the first batch: empty tables, no mask set.
func NewSubmitted(info *Info) Submitted {
	return Submitted{slots: make([]submittedSlot, info.MaxSlots), masks: make([]uint64, info.MaxMasks+1)}
}

// Take applies a batch, which must be valid. restore can't undo it.
func (s *Submitted) Take(b *Batch) {
	for i := range b.Binds {
		s.bind(&b.Binds[i])
	}
	for i := range b.Rows {
		r := &b.Rows[i]
		s.append(r, b.Seq)
		if r.Sample {
			s.slots[r.Slot].sampled = true
		}
	}
	for _, id := range b.Drops {
		s.setMask(id, 0)
	}
	for i := range b.Masks {
		s.setMask(b.Masks[i].ID, b.Seq)
	}
	s.slotsWere, s.masksWere = s.slotsWere[:0], s.masksWere[:0]
}

// bind gives a slot the table of b. It keeps the old state of the slot for restore.
func (s *Submitted) bind(b *SlotBind) {
	s.slotsWere = append(s.slotsWere, slotWas{b.Slot, s.slots[b.Slot]})
	s.slots[b.Slot] = submittedSlot{pages: int32(len(b.Pages))}
}

// append adds the number of a row's new pages to that of its slot's table, and records that the
// batch with Seq seq has drafts, if the row has some, and how many positions the slot's sum of hidden
// states then has. It keeps the old state of the slot for restore.
func (s *Submitted) append(r *Row, seq uint64) {
	if len(r.Pages) == 0 && len(r.Drafts) == 0 && r.Hidden != HiddenSum {
		return
	}
	s.slotsWere = append(s.slotsWere, slotWas{r.Slot, s.slots[r.Slot]})
	s.slots[r.Slot].pages += int32(len(r.Pages))
	if len(r.Drafts) > 0 {
		s.slots[r.Slot].drafted = seq
	}
	if r.Hidden == HiddenSum {
		s.slots[r.Slot].summed = r.Start + int32(r.Own())
	}
}

// setMask records that the batch with Seq seq has set mask id, or with seq 0 that the mask is
// dropped. It keeps the old value for restore.
func (s *Submitted) setMask(id MaskID, seq uint64) {
	s.masksWere = append(s.masksWere, maskWas{id, s.masks[id]})
	s.masks[id] = seq
}

// restore undoes all calls of bind, append and setMask since the last Take or restore.
func (s *Submitted) restore() {
	for i := len(s.slotsWere) - 1; i >= 0; i-- {
		s.slots[s.slotsWere[i].slot] = s.slotsWere[i].submittedSlot
	}
	for i := len(s.masksWere) - 1; i >= 0; i-- {
		s.masks[s.masksWere[i].id] = s.masksWere[i].seq
	}
	s.slotsWere, s.masksWere = s.slotsWere[:0], s.masksWere[:0]
}
