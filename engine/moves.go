package engine

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// MoveID numbers a move. The scheduler counts from 1 and never reuses a number; 0 is no
// move.
type MoveID uint64

// Move describes a copy of pages between the device and a lower tier. It holds no bytes of
// KV: it names the pages. The owner of the lower tier knows what they hold.
type Move struct {
	ID       MoveID
	From, To kv.Tier // exactly one of them is kv.TierDevice
	// Pages of the device, by ascending position.
	Pages []kv.PageID
}

// Moved reports the end of move ID. If Err is nil, all pages are copied. Otherwise the source is
// unchanged, and the destination must not be used.
type Moved struct {
	ID  MoveID
	Err error
}

// Mover is a Backend whose device exchanges pages with host memory. Move is called from the
// goroutine that submits; the other methods from any.
//
// A move copies what the batches submitted and the moves begun before it have written. Those
// batches and moves never see what it writes. A later batch that reads or writes the destination
// of a pending move, or writes its source, must list the move in After, unless an earlier batch
// has listed it. If the move fails, rows and copies that read its destination are void: such rows
// end with ErrMove.
type Mover interface {
	// Move begins m and returns. memory has one slice of Info.PageBytes bytes for each of m.Pages,
	// from HostAlloc; it belongs to the Mover until the move has ended. Move fails with
	// ErrInvalid, ErrBusy, ErrClosed or the *Error that ended the device; then m has not begun.
	Move(m *Move, memory [][]byte) error
	// Moved appends the moves that have ended since the last call of Moved to dst, in the order of
	// their ends, and returns the result. Each begun move ends once. If the device is lost or
	// closed, a pending move ends with the device's *Error or with ErrClosed.
	Moved(dst []Moved) []Moved
	// Ready receives a value after a move has ended; one value may stand for several.
	Ready() <-chan struct{}
	// HostAlloc returns host memory for moves; HostFree frees it.
	HostAlloc(bytes int) ([]byte, error)
	HostFree([]byte)
}

// ErrMove is wrapped by RowOut.Err of a row that reads the destination of a failed
// move, and by the error of a move that can't be done.
var ErrMove = errors.New("engine: pages were not moved")

// CheckMove returns an error that wraps ErrInvalid if m has no number, does not go between the
// device and another tier, or names a page that the device lacks, or if memory is not one slice of
// PageBytes bytes for each page. Else it returns nil. Every Mover's Move calls it first.
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
