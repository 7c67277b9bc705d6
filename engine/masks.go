package engine

// Masks are the masks of a backend that samples in host memory.
type Masks struct{ bits [][]uint64 }

// NewMasks returns n masks, none of them set. Memory: n slices, and the bits of set
// masks.
func NewMasks(n int) Masks { return Masks{make([][]uint64, n+1)} }

// Of returns the bits of a mask, valid until the next Apply; nil for mask 0, which
// allows all tokens.
func (m Masks) Of(id MaskID) []uint64 { return m.bits[id] }

// Apply drops and sets the masks of a valid batch. It copies the bits.
func (m Masks) Apply(b *Batch) {
	for _, id := range b.Drops {
		m.bits[id] = nil
	}
	for i := range b.Masks {
		id := b.Masks[i].ID
		m.bits[id] = append(m.bits[id][:0], b.Masks[i].Bits...)
	}
}
