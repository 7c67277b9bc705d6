package kv

import (
	"github.com/coppice-llm/coppice/internal/enum"
)

// EventKind is the change that an [Event] reports.
type EventKind uint8

// The kinds of event.
const (
	Stored  EventKind = iota // Blocks became available below Parent
	Removed                  // Hashes are no longer available in Tier
	Cleared                  // everything is gone, in all tiers
)

var eventNames = enum.New[EventKind]("kv", "event", "stored", "removed", "cleared")

func (k EventKind) String() string { return eventNames.Name(k) }

// Event is one change of a cache's contents. Every block has BlockTokens tokens and begins
// at a multiple of BlockTokens. A parent's Stored event comes before those of its children,
// and no block is stored again before it was removed, so a subscriber can check every event.
//
// Events are immutable once the cache has returned them; subscribers share their slices.
type Event struct {
	Seq       uint64 // number of the event's batch, ascending from 0; set by the event log
	Kind      EventKind
	Tier      Tier
	HasParent bool // Stored: false at the start of a sequence
	// PublicParent reports that the parent's namespace is Namespace without its Salt.
	PublicParent bool
	Namespace    Namespace
	Parent       BlockHash   // Stored: the block before Blocks[0], valid if HasParent
	Blocks       []Block     // Stored: consecutive blocks
	Hashes       []BlockHash // Removed: in any order
}

// NamesSalt reports whether the first block of a Stored event must name its salt. That is so at the start of a sequence
// and after a public parent. Elsewhere a reader knows the salt from the parent.
func (e *Event) NamesSalt() bool {
	return e.Namespace.Salt != "" && (!e.HasParent || e.PublicParent)
}

// Block is one stored block.
type Block struct {
	Hash   BlockHash
	Local  LocalHash // 0 in dumps, and for blocks in or read from tiers below the device
	Tokens []Token   // len = BlockTokens
	Media  []uint64  // hashes of the media in the block, each once, ascending; nil if it has none
}
