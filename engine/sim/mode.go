package sim

import (
	"errors"

	"github.com/coppice-llm/coppice/internal/enum"
)

// Mode says how much of what rows read and write is checked. In all modes the
// outputs depend on it.
type Mode uint8

// The modes.
const (
	// Full checks every slot that a row reads: right position, and a chain of
	// hashes that holds from the first token on. Cost: a few nanoseconds per token
	// of context.
	Full Mode = iota
	// Boundary checks the last slot that a row reads, against what the engine's
	// slot ran before; a row that does not continue there (the first one on cached
	// pages) has the first and the last slot of each page checked. Cost O(1) for
	// a decode row.
	Boundary
	// Off checks nothing: the hash of the last slot before Start is taken as it is.
	Off
)

var modeNames = enum.New[Mode]("sim", "mode", "full", "boundary", "off")

func (m Mode) String() string { return modeNames.Name(m) }

// UnmarshalText reads "full", "boundary" or "off".
func (m *Mode) UnmarshalText(text []byte) error { return modeNames.Read(m, text) }

// ErrCorrupt is wrapped by the *engine.Error that ends the device when a batch
// reads or overwrites what it must not: the scheduler's bug, never the caller's.
var ErrCorrupt = errors.New("sim: the KV cache is corrupt")
