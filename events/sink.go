package events

import (
	"errors"

	"github.com/coppice-llm/coppice/kv"
)

// Block is a stored block as an index needs it.
type Block struct {
	Hash  kv.BlockHash // as the worker names the block, also when the block is removed
	Local kv.LocalHash // hash of the content, computed by this process: equal for all workers
}

// Stored is a run of consecutive blocks that became available in one tier.
type Stored struct {
	Tier      kv.Tier
	Parent    kv.BlockHash // the block before Blocks[0], if HasParent
	HasParent bool         // false at the start of a sequence
	Blocks    []Block
}

// ErrUnknownParent is a Sink's error for blocks below an unknown block.
var ErrUnknownParent = errors.New("events: parent block unknown")

// Sink is an index that a [Subscriber] keeps current. Calls for one rank are sequential and in
// order; calls for different ranks are concurrent. A Sink keeps no slice of its arguments after
// it returns, except Replace's.
//
// The contents of a rank are a set of pairs (tier, hash). Store adds pairs and Remove deletes
// them. Storing a pair that is present, or removing one that is absent, changes nothing.
type Sink interface {
	// Store fails with ErrUnknownParent if the rank has the parent in no tier. Then it
	// stores nothing.
	Store(r kv.Rank, s Stored) error
	Remove(r kv.Rank, tier kv.Tier, hashes []kv.BlockHash)
	// Clear deletes all blocks of a rank, in all tiers. The rank stays known.
	Clear(r kv.Rank)
	// Replace makes dump the whole contents of the rank. Readers see all of the change or
	// nothing of it. In dump, parents come before their children. The sink owns dump. refused is
	// the number of blocks whose parents are not in dump.
	Replace(r kv.Rank, dump []Stored) (refused int)
	// Forget removes a rank that will not return.
	Forget(r kv.Rank)
}
