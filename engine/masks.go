package engine

// Masks are the masks of a backend that samples in host memory.
type Masks struct{ bits [][]uint64 }

// NewMasks returns masks with the ids 1 to n, none of them set. It allocates n slice headers; each
// set mask takes its bits in addition.
func NewMasks(n int) Masks { return Masks{make([][]uint64, n+1)} }

// Of returns the bits of mask id, valid until the next Apply. It returns nil for id 0, which
// allows all tokens, and for a mask that is not set.
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
