package engine

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// MoveID numbers a move. The scheduler counts them from 1 and uses none twice; 0 is no move.
type MoveID uint64

// Move copies pages between the device and a lower tier. It is a value, in a plan for
// example: what is to be copied, and what it holds. Where that lies in the lower tier is
// for those to know that keep it, by what it holds.
type Move struct {
	ID       MoveID
	From, To kv.Tier // one of them is the device
	// Pages are those of the device, by ascending position.
	Pages []kv.PageID
	// Tokens [Start, len(Tokens)) are what the pages hold, after the others. They are
	// whole pages; Start is a multiple of the page.
	Namespace    kv.Namespace
	PublicTokens int // of Tokens, as in a request
	Tokens       []kv.Token
	Start        int
}

// Moved is the ending of a move. Without an error all pages are copied. With one the
// source is as it was, and the destination must not be used.
type Moved struct {
	ID  MoveID
	Err error
}

// Mover is what a backend has beside Backend whose device exchanges pages with host
// memory. Move is called from the goroutine that submits; the other methods from any.
//
// A move sees the batches submitted and the moves begun before it, and they do not see
// it. A batch that is submitted later and reads or writes what a pending move writes, or
// writes what one reads, names the move in After, unless a batch before it has. If that move fails, the rows and the
// copies that read what it was to write are void: their rows end with ErrMove.
type Mover interface {
	// Move begins m and returns. memory has Info.PageBytes for each page, of HostAlloc,
	// and is the mover's until the move has ended. It fails with ErrInvalid, ErrBusy,
	// ErrClosed or the *Error that ended the device; then m has not begun.
	Move(m *Move, memory [][]byte) error
	// Moved appends the moves that have ended since the last call to dst, in the order
	// in which they did. Each that was begun ends once: with the device's *Error or
	// ErrClosed if that is lost or closed.
	Moved(dst []Moved) []Moved
	// Ready gets a value after a move has ended; one value may stand for several.
	Ready() <-chan struct{}
	// HostAlloc returns host memory that moves may use; HostFree gives it back.
	HostAlloc(bytes int) ([]byte, error)
	HostFree([]byte)
}

// ErrMove is wrapped by RowOut.Err of a row that reads pages which a failed move was to
// write, and by the error of a move that can't be done.
var ErrMove = errors.New("engine: pages were not moved")

// CheckMove checks m against what a device can copy and returns an error that wraps
// ErrInvalid, or nil. Move of every mover calls it.
func (info *Info) CheckMove(m *Move, memory [][]byte) error {
	if m.ID == 0 {
		return invalid("a move without number")
	}
	if (m.From == kv.TierDevice) == (m.To == kv.TierDevice) {
		return fmt.Errorf("move %d: %w", m.ID, invalid("from %v to %v", m.From, m.To))
	}
	if len(memory) != len(m.Pages) {
		return fmt.Errorf("move %d: %w", m.ID, invalid("memory for %d pages of %d", len(memory), len(m.Pages)))
	}
	for i, p := range m.Pages {
		if !info.validPage(p) {
			return fmt.Errorf("move %d: %w", m.ID, invalid("page %d of %d", p, info.NumPages))
		}
		if len(memory[i]) != info.PageBytes {
			return fmt.Errorf("move %d: %w", m.ID, invalid("%d bytes for a page of %d", len(memory[i]), info.PageBytes))
		}
	}
	return nil
}
