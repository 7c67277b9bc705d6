package engine

import (
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// Validate checks b against the limits of a backend. It returns nil, or an error that wraps
// ErrInvalid and names the row, bind, copy, swap or mask at fault. lastSeq is the Seq of the
// previous batch. before is the state after that batch; Validate leaves it unchanged. Submit of
// every backend calls Validate first.
func (b *Batch) Validate(info *Info, lastSeq uint64, before *Submitted) error {
	if b.Seq <= lastSeq {
		return invalid("Seq %d does not follow %d", b.Seq, lastSeq)
	}
	if len(b.Rows) > info.MaxRows {
		return invalid("%d rows, at most %d fit", len(b.Rows), info.MaxRows)
	}
	for i := range b.Binds {
		if err := validSlot(info, b.Binds[i].Slot); err != nil {
			return fmt.Errorf("bind %d: %w", i, err)
		}
		if err := info.validPages(b.Binds[i].Pages); err != nil {
			return fmt.Errorf("bind %d: %w", i, err)
		}
		if err := b.Binds[i].Sampling.Validate(info.Vocab); err != nil {
			return fmt.Errorf("bind %d: %w: %w", i, ErrInvalid, err)
		}
		if err := info.CheckSampling(&b.Binds[i].Sampling); err != nil {
			return fmt.Errorf("bind %d: %w: %w", i, ErrInvalid, err)
		}
	}
	for i, c := range b.Copies {
		if !info.validPage(c.Src) || !info.validPage(c.Dst) || c.Src == c.Dst {
			return invalid("copy %d: page %d to page %d of %d", i, c.Src, c.Dst, info.NumPages)
		}
		if c.Tokens < 1 || int(c.Tokens) > info.PageTokens {
			return invalid("copy %d: %d tokens of a page of %d", i, c.Tokens, info.PageTokens)
		}
	}
	tokens := 0
	for i := range b.Rows {
		if err := b.Rows[i].validate(info); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
		tokens += b.Rows[i].Len()
	}
	if tokens > info.MaxTokens {
		return invalid("%d tokens, at most %d fit", tokens, info.MaxTokens)
	}
	defer before.restore()
	if err := b.validateMasks(info, before); err != nil {
		return err
	}
	return b.validateTables(info, before)
}

// validateMasks checks the Drops and the Masks of b, and that each row's mask is set. It applies
// the drops and sets to state; the caller restores it.
func (b *Batch) validateMasks(info *Info, state *Submitted) error {
	for i, id := range b.Drops {
		if !info.validMask(id) || state.masks[id] == 0 {
			return invalid("drop %d: mask %d is not set", i, id)
		}
		state.setMask(id, 0)
	}
	for _, m := range b.Masks {
		switch {
		case !info.validMask(m.ID):
			return invalid("mask %d of %d", m.ID, info.MaxMasks)
		case len(m.Bits) != info.MaskWords():
			return invalid("mask %d has %d words for %d tokens", m.ID, len(m.Bits), info.Vocab)
		case state.masks[m.ID] == b.Seq:
			return invalid("mask %d is set twice", m.ID)
		}
		state.setMask(m.ID, b.Seq)
	}
	for i := range b.Rows {
		r := &b.Rows[i]
		for j := range 1 + len(r.DraftMasks) {
			if id := r.MaskAt(j); id != 0 && (!info.validMask(id) || state.masks[id] == 0) {
				return fmt.Errorf("row %d: %w", i, invalid("mask %d is not set", id))
			}
		}
	}
	return nil
}

// validateTables checks that after the Binds and the Pages of its rows each slot's table has the
// pages that the rows need, that the slot of a deferred row has sampled, that no row follows one with
// drafts in its slot, that a sum of hidden states leaves out no position, and that each swap replaces an entry that exists. It applies the Binds and rows to tables; the caller restores them.
func (b *Batch) validateTables(info *Info, tables *Submitted) error {
	for i := range b.Binds {
		tables.bind(&b.Binds[i])
		if n := len(b.Binds[i].Pages); n > info.tablePages() {
			return fmt.Errorf("bind %d: %w", i, invalid("%d pages, at most %d are of use", n, info.tablePages()))
		}
	}
	for i := range b.Rows {
		r := &b.Rows[i]
		if tables.slots[r.Slot].drafted == b.Seq {
			return fmt.Errorf("row %d: %w", i, invalid("slot %d has drafts in an earlier row of the batch", r.Slot))
		}
		if err := r.validateHidden(info, tables.slots[r.Slot].summed); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
		tables.append(r, b.Seq)
		slot := &tables.slots[r.Slot]
		if r.Deferred && !slot.sampled {
			return fmt.Errorf("row %d: %w", i, invalid("deferred, but slot %d has sampled nothing since its bind", r.Slot))
		}
		need, has := kv.CeilPages(int(r.Start)+r.Len(), info.PageTokens), int(slot.pages)
		if has < need || has > info.tablePages() {
			return fmt.Errorf("row %d: %w", i, invalid("slot %d has %d pages, want %d to %d", r.Slot, has, need, info.tablePages()))
		}
	}
	for i, w := range b.Swaps {
		if err := validSlot(info, w.Slot); err != nil {
			return fmt.Errorf("swap %d: %w", i, err)
		}
		if w.At < 0 || w.At >= tables.slots[w.Slot].pages || !info.validPage(w.Page) {
			return invalid("swap %d: page %d for place %d of slot %d, which has %d", i, w.Page, w.At, w.Slot, tables.slots[w.Slot].pages)
		}
	}
	return nil
}

// tablePages returns the largest number of pages that a slot's table may have.
func (info *Info) tablePages() int {
	return min(kv.CeilPages(info.MaxPositions, info.PageTokens), info.NumPages)
}

func (info *Info) validPages(pages []kv.PageID) error {
	for _, p := range pages {
		if !info.validPage(p) {
			return invalid("page %d of %d", p, info.NumPages)
		}
	}
	return nil
}

func (r *Row) validate(info *Info) error {
	if err := validSlot(info, r.Slot); err != nil {
		return err
	}
	switch {
	case r.Deferred && len(r.Tokens) != 0:
		return invalid("deferred, yet %d tokens are given", len(r.Tokens))
	case !r.Deferred && len(r.Tokens) == 0:
		return invalid("no tokens")
	case r.Start < 0:
		return invalid("starts at %d", r.Start)
	case r.SampleIndex < 0:
		return invalid("sample index %d", r.SampleIndex)
	case r.Digest && !info.Capabilities.Digests:
		return invalid("a digest is requested, the backend %s has none", info.Name)
	case r.PromptLogprobs && !info.Capabilities.PromptLogprobs:
		return invalid("log-probabilities of the prompt are requested, the backend %s has none", info.Name)
	case r.PromptTop < 0 || r.PromptTop > MaxTopLogprobs || r.PromptTop > 0 && !r.PromptLogprobs:
		return invalid("the %d most probable tokens of the prompt are asked for, want 0 to %d, with its log-probabilities", r.PromptTop, MaxTopLogprobs)
	}
	end := int(r.Start) + r.Len()
	if end > info.MaxPositions {
		return invalid("ends at %d, the model has %d positions", end, info.MaxPositions)
	}
	if end > info.NumPages*info.PageTokens {
		return invalid("ends at %d, the pool holds %d", end, info.NumPages*info.PageTokens)
	}
	if err := info.validPages(r.Pages); err != nil {
		return err
	}
	for _, t := range r.Tokens {
		if uint64(t) >= uint64(info.Vocab) {
			return invalid("token %d of a vocabulary of %d", t, info.Vocab)
		}
	}
	return r.validateDrafts(info)
}

func (r *Row) validateDrafts(info *Info) error {
	switch d := len(r.Drafts); {
	case len(r.DraftMasks) != 0 && len(r.DraftMasks) != d:
		return invalid("%d masks for %d drafts", len(r.DraftMasks), d)
	case d == 0:
		return nil
	case d > info.MaxDrafts:
		return invalid("%d drafts, the backend %s takes %d", d, info.Name, info.MaxDrafts)
	case !r.Sample:
		return invalid("%d drafts of a row that does not sample", d)
	case r.PromptLogprobs:
		return invalid("%d drafts of a row that asks for log-probabilities of the prompt", d)
	}
	for _, t := range r.Drafts {
		if uint64(t) >= uint64(info.Vocab) {
			return invalid("draft %d of a vocabulary of %d", t, info.Vocab)
		}
	}
	return nil
}

func (info *Info) validMask(id MaskID) bool { return id > 0 && int(id) <= info.MaxMasks }

// MaskWords returns the length of MaskSet.Bits: one bit for each token of the vocabulary, in words
// of 64.
func (info *Info) MaskWords() int { return (info.Vocab + 63) / 64 }

func (info *Info) validPage(p kv.PageID) bool { return p >= 0 && int(p) < info.NumPages }

func validSlot(info *Info, s Slot) error {
	if s < 0 || int(s) >= info.MaxSlots {
		return invalid("slot %d of %d", s, info.MaxSlots)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
