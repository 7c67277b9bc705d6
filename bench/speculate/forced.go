package speculate

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// forced is a backend that computes as another one does, and samples what scripts say: the n-th
// token of each output is the n-th one of its script. It replaces the mask of each sample by one
// that allows this token alone, and changes nothing else, so the other backend computes the logits,
// penalties and digests of these tokens, and confirms or refuses drafts, as it does anyway.
//
// A request names its script by seed. Its own masks have no effect, but Submit returns an error
// if one of them forbids the token of the script. With temperature 0 a sample under a mask of one bit
// takes as long as one without a mask. forced is no engine.Mover, so the node has no tiers.
type forced struct {
	engine.Backend
	info    engine.Info
	scripts [][]kv.Token
	slots   []int                      // by slot: its script; -1 for none
	single  map[kv.Token][]uint64      // masks of one bit, made when first needed and never changed
	asked   engine.Masks               // masks that the requests have set
	ids     map[kv.Token]engine.MaskID // of the batch that Submit works on
}

// force returns a forced around backend. The scripts must not change as long as it is used.
func force(backend engine.Backend, scripts [][]kv.Token) *forced {
	f := &forced{Backend: backend, info: backend.Info(), scripts: scripts, single: map[kv.Token][]uint64{}, ids: map[kv.Token]engine.MaskID{}}
	f.slots, f.asked = slices.Repeat([]int{-1}, f.info.MaxSlots), engine.NewMasks(f.info.MaxMasks)
	return f
}

// seed returns the SamplingParams.Seed of requests whose output is script i.
func seed(i int) uint64 { return uint64(i) + 1 }

// Submit implements engine.Backend. It fails with engine.ErrInvalid if a request has no script, if a
// row samples past the end of its script or a token that its own mask forbids, and if the samples of
// b take more different tokens than the backend has masks.
func (f *forced) Submit(b *engine.Batch) (engine.Ticket, error) {
	c := *b
	c.Drops, c.Masks, c.Rows = nil, nil, slices.Clone(b.Rows)
	for i := range b.Binds {
		f.slots[b.Binds[i].Slot] = int(b.Binds[i].Sampling.Seed) - 1
	}
	f.asked.Apply(b)
	clear(f.ids)
	for i := range c.Rows {
		if r := &c.Rows[i]; r.Sample {
			if err := f.row(&c, r); err != nil {
				return nil, err
			}
		}
	}
	return f.Backend.Submit(&c)
}

// row sets the masks of the samples of r: one, and one more after each of its drafts.
func (f *forced) row(c *engine.Batch, r *engine.Row) (err error) {
	if r.Mask, err = f.mask(c, r.Slot, r.SampleIndex, r.Mask); err != nil || len(r.Drafts) == 0 {
		return err
	}
	asked, script := r.DraftMasks, f.scripts[f.slots[r.Slot]]
	r.DraftMasks = make([]engine.MaskID, len(r.Drafts))
	right := true // the drafts so far are the script's tokens; the mask after another one is that of another text
	for i, draft := range r.Drafts {
		n := r.SampleIndex + int32(i)
		right = right && draft == script[n]
		var of engine.MaskID
		if right && len(asked) > 0 {
			of = asked[i]
		}
		if r.DraftMasks[i], err = f.mask(c, r.Slot, n+1, of); err != nil {
			return err
		}
	}
	return nil
}

// mask returns the id of the mask that allows only token n of the slot's script. asked is the mask
// that the row has named for that sample.
func (f *forced) mask(c *engine.Batch, slot engine.Slot, n int32, asked engine.MaskID) (engine.MaskID, error) {
	at := f.slots[slot]
	if at < 0 || at >= len(f.scripts) {
		return 0, fmt.Errorf("%w: the request in slot %d has no script", engine.ErrInvalid, slot)
	}
	script := f.scripts[at]
	if int(n) >= len(script) {
		return 0, fmt.Errorf("%w: sample %d of script %d, which has %d tokens", engine.ErrInvalid, n, at, len(script))
	}
	t := script[n]
	if bits := f.asked.Of(asked); bits != nil && bits[t/64]>>(t%64)&1 == 0 {
		return 0, fmt.Errorf("%w: the format of the request forbids token %d of script %d, which is %d", engine.ErrInvalid, n, at, t)
	}
	id, set := f.ids[t]
	if set {
		return id, nil
	}
	id = engine.MaskID(len(f.ids) + 1)
	if int(id) > f.info.MaxMasks {
		return 0, fmt.Errorf("%w: the samples of a batch need more than the backend's %d masks; lower the tokens of a step", engine.ErrInvalid, f.info.MaxMasks)
	}
	bits := f.single[t]
	if bits == nil {
		bits = make([]uint64, f.info.MaskWords())
		bits[t/64] = 1 << (t % 64)
		f.single[t] = bits
	}
	f.ids[t], c.Masks = id, append(c.Masks, engine.MaskSet{ID: id, Bits: bits})
	return id, nil
}
