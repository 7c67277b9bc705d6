package events

import (
	"errors"

	"github.com/coppice-llm/coppice/kv"
)

// Rank is the owner of events and of their numbers.
type Rank = kv.Rank

// Block is a stored block as an index needs it.
type Block struct {
	Hash  kv.BlockHash // the worker's own; its removal names it
	Local kv.LocalHash // of the content, computed here: equal for all workers
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

// Sink is an index that a [Subscriber] keeps current. Calls for one rank are sequential
// and in order; calls for different ranks are concurrent. A Sink keeps no slice of its
// arguments after it returns, except Replace's.
//
// The contents of a rank are a set of (tier, hash). Store adds and Remove deletes; each
// ignores what is present, or absent, already.
type Sink interface {
	// Store fails with ErrUnknownParent if the rank has the parent in no tier. Then it
	// stores nothing.
	Store(r kv.Rank, s Stored) error
	Remove(r kv.Rank, tier kv.Tier, hashes []kv.BlockHash)
	// Clear deletes all blocks of a rank, in all tiers. The rank stays known.
	Clear(r kv.Rank)
	// Replace makes the dump the whole contents of the rank, in one step for readers.
	// Parents come before their children. The sink owns the dump. It returns the number
	// of blocks that it refused, because their parents are not in the dump.
	Replace(r kv.Rank, dump []Stored) (refused int)
	// Forget removes a rank that will not return.
	Forget(r kv.Rank)
}
