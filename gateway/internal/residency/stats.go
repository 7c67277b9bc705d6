package residency

// Stats counts the refused blocks by reason, except those whose missing parent is an error of Store.
type Stats struct {
	BelowRefusedBlocks uint64 // no parent, but blocks of the rank were refused before, so no event need have been lost
	OverfullBlocks     uint64 // a limit of Config.Index was reached, usually the one per rank
	TierFullBlocks     uint64 // the limit Config.TierBlocks was reached
	ForeignBlocks      uint64 // hashed by another function than the rank's earlier blocks
	CollisionBlocks    uint64 // another prefix has the same hash
	InvalidBlocks      uint64 // impossible sequences, tiers and dumps
}

// Stats returns the current counts. It does not wait for a change of a rank.
func (x *Residency) Stats() Stats {
	x.counting.Lock()
	defer x.counting.Unlock()
	return x.stats
}

// count adds this many blocks to a field of x.stats.
func (x *Residency) count(field *uint64, blocks int) {
	x.counting.Lock()
	defer x.counting.Unlock()
	*field += uint64(blocks)
}
