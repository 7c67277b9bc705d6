package engine

// Hidden says which final hidden state a row asks for: the model's output at a position after its last
// norm, from which the logits are computed. Embeddings of texts are made of these states.
type Hidden uint8

// The hidden states that a row may ask for.
const (
	HiddenNone Hidden = iota
	// HiddenLast is the state at the row's last own token. KV of the tokens before it may come from a
	// cache.
	HiddenLast
	// HiddenSum is the sum of the states at the positions [0, Start+n), by ascending position. The
	// backend keeps the sum with the slot, so that its bits do not depend on how a prompt is cut. A
	// position whose KV comes from a cache has no state, so the slot must have run all positions: after a
	// bind the first row that asks for the sum has Start 0, and each next one begins where the one before
	// ended.
	HiddenSum
)

// validateHidden checks what r asks for; summed is the number of positions in the slot's sum.
func (r *Row) validateHidden(info *Info, summed int32) error {
	switch {
	case r.Hidden == HiddenNone:
		return nil
	case r.Hidden > HiddenSum:
		return invalid("hidden state %d, want 0 to %d", r.Hidden, HiddenSum)
	case info.HiddenSize == 0:
		return invalid("a hidden state is requested, the backend %s gives none", info.Name)
	case len(r.Drafts) > 0:
		return invalid("%d drafts of a row that asks for a hidden state", len(r.Drafts))
	case r.Hidden == HiddenSum && r.Start != summed:
		return invalid("a sum of hidden states is requested from position %d on, the slot's sum has %d", r.Start, summed)
	}
	return nil
}
