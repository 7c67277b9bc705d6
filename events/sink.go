package events

import (
	"errors"

	"github.com/coppice-llm/coppice/kv"
)

// Rank is what events are numbered and owned by.
type Rank = kv.Rank

// Block is a stored block as an index needs it.
type Block struct {
	Hash  kv.BlockHash // the worker's own, by which it will remove the block
	Local kv.LocalHash // of the content, computed here: equal over all workers
}

// Stored is a run of consecutive blocks that became available in one tier.
type Stored struct {
	Tier      kv.Tier
	Parent    kv.BlockHash // the block before Blocks[0], if HasParent
	HasParent bool         // false at the start of a sequence
	Blocks    []Block
}

// ErrUnknownParent is a Sink's answer to blocks below one that it does not know.
var ErrUnknownParent = errors.New("events: parent block unknown")

// Sink is an index that a [Subscriber] keeps up to date. Calls for one rank come
// one at a time and in order; different ranks come at the same time. A Sink keeps
// no slice of its arguments after it returns, but Replace's.
//
// The residency of a rank is a set of (tier, hash): Store adds to it, Remove
// takes from it, both do nothing for what is there or is not there already.
type Sink interface {
	// Store fails with ErrUnknownParent if the rank holds the parent in no tier;
	// then nothing of it was stored.
	Store(r kv.Rank, s Stored) error
	Remove(r kv.Rank, tier kv.Tier, hashes []kv.BlockHash)
	// Clear forgets all blocks of a rank, in all tiers; the rank stays known.
	Clear(r kv.Rank)
	// Replace makes the dump all that the rank holds, at once to readers; parents
	// come before their children. The dump belongs to the sink. It returns how
	// many blocks it refused, as their parents are not in the dump.
	Replace(r kv.Rank, dump []Stored) (refused int)
	// Forget removes a rank that is gone for good.
	Forget(r kv.Rank)
}
