package sim

import (
	"errors"

	"github.com/coppice-llm/coppice/internal/enum"
)

// Mode is the extent of the checks of reads and writes. In all modes the outputs depend on
// the KV that rows read.
type Mode uint8

// The modes.
const (
	// Full checks every slot that a row reads: the position, and the chain of hashes from
	// the first token on. Cost: a few nanoseconds per token of context.
	Full Mode = iota
	// Boundary checks the last slot that a row reads against the last row of its engine
	// slot. For a row that does not continue there (the first one on cached pages) it checks
	// the first and the last slot of each page. Cost O(1) for a decode row.
	Boundary
	// Off checks nothing: the hash of the last slot before Start counts as right.
	Off
)

var modeNames = enum.New[Mode]("sim", "mode", "full", "boundary", "off")

func (m Mode) String() string { return modeNames.Name(m) }

// UnmarshalText reads "full", "boundary" or "off".
func (m *Mode) UnmarshalText(text []byte) error { return modeNames.Read(m, text) }

// ErrCorrupt is wrapped by the *engine.Error that ends the device when a batch reads or
// overwrites the wrong KV. That is a bug of the scheduler, never of its caller.
var ErrCorrupt = errors.New("sim: the KV cache is corrupt")
