package enginetest

import (
	"errors"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// maskOf returns the bits of a mask that allows the given tokens.
func (r *rig) maskOf(allowed ...kv.Token) []uint64 {
	bits := make([]uint64, r.info.MaskWords())
	for _, t := range allowed {
		bits[t/64] |= 1 << (t % 64)
	}
	return bits
}

// allows reports whether a mask allows the token; a nil mask allows all.
func allows(mask []uint64, t kv.Token) bool { return mask == nil || mask[t/64]>>(t%64)&1 == 1 }

// masking describes a batch of checkMasks: the masks that it sets and drops, the masks of its
// rows, and the one token that each of these allows; free is the token sampled without a mask.
type masking struct {
	sets  []engine.MaskSet
	drops []engine.MaskID
	rows  [3]engine.MaskID
	want  [3]kv.Token
}

const free = kv.Token(1 << 20)

// checkMasks sets masks once and names them in later batches: shared by rows, replaced while a
// batch that names them is in flight, dropped, set again in the batch that drops them, and kept
// while slots are bound to other sequences. Then the caller overwrites its slices, and refused
// batches must leave all masks as they were.
func checkMasks(h *harness) {
	m := &masked{rig: h.open(usual(16))}
	if least := m.info.MaxRows * m.info.MaxInflight; m.info.MaxMasks < least {
		failf("MaxMasks is %d, want %d at least, one for each row in flight", m.info.MaxMasks, least)
	}
	for i := range m.seqs {
		m.seqs[i] = m.sequence(engine.Slot(i), engine.SamplingParams{}, m.tokens(uint64(i+1), 9+i), 1)
	}
	last := engine.MaskID(m.info.MaxMasks)
	one := func(id engine.MaskID, t kv.Token) engine.MaskSet { return engine.MaskSet{ID: id, Bits: m.maskOf(t)} }
	steps := []masking{
		{rows: [3]engine.MaskID{0, 0, 0}, want: [3]kv.Token{free, free, free}},
		{sets: []engine.MaskSet{one(last, 30), one(1, 10), one(2, 20)}, rows: [3]engine.MaskID{1, 2, last}, want: [3]kv.Token{10, 20, 30}},
		{rows: [3]engine.MaskID{2, 1, 0}, want: [3]kv.Token{20, 10, free}},
		{sets: []engine.MaskSet{one(1, 11)}, rows: [3]engine.MaskID{1, last, 2}, want: [3]kv.Token{11, 30, 20}},
		{drops: []engine.MaskID{2}, sets: []engine.MaskSet{one(2, 21)}, rows: [3]engine.MaskID{2, 1, 2}, want: [3]kv.Token{21, 11, 21}},
		{drops: []engine.MaskID{1}, rows: [3]engine.MaskID{last, 0, 2}, want: [3]kv.Token{30, free, 21}},
		{sets: []engine.MaskSet{one(1, 12)}, rows: [3]engine.MaskID{1, 1, 1}, want: [3]kv.Token{12, 12, 12}},
	}
	m.play("masks by number", steps...)
	// A preempted sequence gives its slot away; masks must not be tied to slots.
	m.seqs[0], m.seqs[1] = m.seqs[1], m.seqs[0]
	m.seqs[0].slot, m.seqs[1].slot, m.bound = 0, 1, false
	m.free[0], m.free[1] = m.free[1], m.free[0]
	m.play("slots bound again", masking{rows: [3]engine.MaskID{1, 2, last}, want: [3]kv.Token{12, 21, 30}}, masking{want: [3]kv.Token{free, free, free}})
	for _, s := range steps {
		for _, x := range s.sets {
			clear(x.Bits)
		}
	}
	kept := masking{rows: [3]engine.MaskID{1, 2, last}, want: [3]kv.Token{12, 21, 30}}
	m.play("the caller used its slices otherwise", kept)
	m.refused(last)
	m.play("batches were refused", kept)
}

// masked samples again and again from three sequences, always at the end of their prompts.
type masked struct {
	*rig
	seqs  [3]*sequence
	bound bool
	free  [3]kv.Token // the tokens sampled without a mask, from the first batch
	known bool
}

// batch builds the batch of a step.
func (m *masked) batch(s *masking) *engine.Batch {
	b := &engine.Batch{Masks: s.sets, Drops: s.drops}
	for i, q := range m.seqs {
		q.ran = 0
		row := q.row(&m.info, len(q.prompt))
		row.Mask = s.rows[i]
		b.Rows = append(b.Rows, row)
		if !m.bound {
			b.Binds = append(b.Binds, q.bind())
		}
	}
	m.bound = true
	return b
}

// play runs steps, with as many in flight as the backend accepts, and compares the tokens. when
// says in a failure what came before.
func (m *masked) play(when string, steps ...masking) {
	var batches []*engine.Batch
	for i := range steps {
		batches = append(batches, m.batch(&steps[i]))
	}
	results := m.pipeline(batches)
	for i, res := range results {
		for row, want := range steps[i].want {
			got := must(out(res, row))
			if want == free && !m.known {
				m.free[row] = got.token
				continue
			}
			if want == free {
				want = m.free[row]
			}
			if got.token != want {
				failf("%s: batch %d, row %d: token %d, want %d, the one that mask %d allows", when, i, row, got.token, want, steps[i].rows[row])
			}
		}
		m.known = true
	}
}

// refused submits batches with invalid masks, and fails if one is not refused.
func (m *masked) refused(last engine.MaskID) {
	good := engine.MaskSet{ID: 1, Bits: m.maskOf(40)}
	for _, f := range []struct {
		name string
		masking
	}{
		{"a row with mask -1", masking{rows: [3]engine.MaskID{-1}}},
		{"a row with a mask past the last", masking{rows: [3]engine.MaskID{last + 1}}},
		{"a row with an unset mask", masking{rows: [3]engine.MaskID{3}}},
		{"a row with a mask that it drops", masking{drops: []engine.MaskID{2}, rows: [3]engine.MaskID{2}}},
		{"mask 0", masking{sets: []engine.MaskSet{{Bits: good.Bits}}}},
		{"a mask past the last", masking{sets: []engine.MaskSet{{ID: last + 1, Bits: good.Bits}}}},
		{"a mask without bits", masking{sets: []engine.MaskSet{{ID: 4}}}},
		{"a mask that is too long", masking{sets: []engine.MaskSet{{ID: 1, Bits: append(m.maskOf(1), 0)}}}},
		{"a mask that is set twice", masking{sets: []engine.MaskSet{good, good}}},
		{"a drop of an unset mask", masking{drops: []engine.MaskID{3}}},
		{"a drop of mask 0", masking{drops: []engine.MaskID{0}}},
		{"a mask that is dropped twice", masking{drops: []engine.MaskID{2, 2}}},
		{"a good mask, a good drop and a bad row", masking{drops: []engine.MaskID{2}, sets: []engine.MaskSet{good}, rows: [3]engine.MaskID{0, 0, 3}}},
	} {
		if _, err := m.submit(m.batch(&f.masking)); !errors.Is(err, engine.ErrInvalid) {
			failf("a batch with %s: %v, want ErrInvalid", f.name, err)
		}
		m.seq--
	}
}

// maskControls are backends that lose, keep or mix up masks.
func maskControls() []control {
	// eachSet changes bits of masks being replaced; old is the previous mask.
	eachSet := func(change func(x, old *engine.MaskSet)) func(engine.Backend) engine.Backend {
		return with(broken{batch: func(b *broken, x *engine.Batch) {
			for i := range x.Masks {
				set := x.Masks[i]
				if old, ok := b.masks[set.ID]; ok {
					change(&x.Masks[i], &old)
					b.masks[set.ID] = old
				} else {
					b.masks[set.ID] = set
				}
			}
		}})
	}
	sets := func(x *engine.Batch, id engine.MaskID) bool {
		return slices.ContainsFunc(x.Masks, func(s engine.MaskSet) bool { return s.ID == id })
	}
	return []control{
		{"masks", "forgets a mask after its batch", with(eachRow(func(_ *broken, r *engine.Row, _ int, x *engine.Batch) {
			if !sets(x, r.Mask) {
				r.Mask = 0
			}
		}))},
		{"masks", "keeps the first bits of a mask", eachSet(func(x, old *engine.MaskSet) { x.Bits = old.Bits })},
		{"masks", "sets a mask one time late", eachSet(func(x, old *engine.MaskSet) { x.Bits, old.Bits = old.Bits, x.Bits })},
		{"masks", "mixes up two masks", with(eachRow(func(_ *broken, r *engine.Row, _ int, _ *engine.Batch) {
			if r.Mask == 1 || r.Mask == 2 {
				r.Mask = 3 - r.Mask
			}
		}))},
		{"masks", "forgets the masks of slots that are bound again", with(eachRow(func(_ *broken, r *engine.Row, _ int, x *engine.Batch) {
			if len(x.Binds) > 0 && !sets(x, r.Mask) {
				r.Mask = 0
			}
		}))},
		{"masks", "keeps the caller's slices", with(broken{batch: func(b *broken, x *engine.Batch) {
			for id := range engine.MaskID(4) {
				if s, ok := b.masks[id]; ok && !sets(x, id) && !slices.Contains(x.Drops, id) {
					x.Masks = append(x.Masks, s)
				}
			}
			for _, s := range x.Masks {
				b.masks[s.ID] = s
			}
			for _, id := range x.Drops {
				if !sets(x, id) {
					delete(b.masks, id)
				}
			}
		}})},
		{"masks", "does not drop", with(broken{batch: func(_ *broken, x *engine.Batch) { x.Drops = nil }})},
		{"masks", "keeps too few", with(broken{info: func(i *engine.Info) { i.MaxMasks = i.MaxRows }})},
	}
}
