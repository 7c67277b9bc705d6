package sim

import (
	"errors"

	"github.com/coppice-llm/coppice/internal/enum"
)

// Mode says how much a backend checks of the reads and writes of KV. In all modes the outputs
// depend on the KV that rows read.
type Mode uint8

// The modes.
const (
	// Full checks every KV slot that a row reads: its position, and the chain of hashes from the
	// first token on. Cost: a few nanoseconds per token of context. It also checks that batches and
	// the host memory of moves stay as they are while they are pending.
	Full Mode = iota
	// Boundary checks only the last KV slot that a row reads, if the row continues where the last
	// row of its engine slot ended. For any other row, such as the first one on cached pages, it
	// checks the first and the last KV slot of each page. Cost O(1) for a decode row.
	Boundary
	// Off checks nothing: it takes the hash in the last KV slot before Start as right.
	Off
)

var modeNames = enum.New[Mode]("sim", "mode", "full", "boundary", "off")

func (m Mode) String() string { return modeNames.Name(m) }

// UnmarshalText reads "full", "boundary" or "off".
func (m *Mode) UnmarshalText(text []byte) error { return modeNames.Read(m, text) }

// ErrCorrupt is wrapped by the *engine.Error that ends the device when a batch reads or
// overwrites the wrong KV, or is changed while it is pending. That is a bug of the scheduler, never
// of its caller.
var ErrCorrupt = errors.New("sim: the KV cache is corrupt")
