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

// Event is one change of a cache's contents. Blocks are BlockTokens long and aligned
// from token 0. A parent is stored before its children, and a block is stored once
// while it lives, so a subscriber can check every event it gets.
//
// Events are immutable once handed out; their slices are shared.
type Event struct {
	Seq       uint64 // number of its batch, ascending from 0; set by the event log
	Kind      EventKind
	Tier      Tier
	HasParent bool // Stored: false at the start of a sequence
	// PublicParent: the parent is under the Namespace without its Salt.
	PublicParent bool
	Namespace    Namespace
	Parent       BlockHash   // Stored: the block before Blocks[0], valid if HasParent
	Blocks       []Block     // Stored: consecutive blocks
	Hashes       []BlockHash // Removed: in any order
}

// Block is one stored block.
type Block struct {
	Hash   BlockHash
	Local  LocalHash // 0 where the hash was known: in dumps, below the device, and read from there
	Tokens []Token   // len = BlockTokens
	Media  []uint64  // hashes of the media in it, each once, ascending; nil without
}
