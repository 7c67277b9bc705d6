package mempool

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// Store keeps the bytes of extents in one tier below the device. Every store passes the
// suite in package mempool/storetest. Its methods may be called from any goroutine and
// never wait for memory to be copied or for a disk; the work runs on goroutines that the
// store owns.
//
//  1. One ending. Each Op that Submit took gives exactly one Done, by its deadline if it
//     has one, after Close too.
//  2. Whole or not at all. An extent can be found only after all its bytes are written.
//     A Get checks header, identity and checksum of all that it reads.
//  3. Pages are the caller's again with the Done; the store touches them no more, even
//     where the disk still works on an operation that was given up. After a Get that
//     failed their content is undefined.
//  4. Parents first. A Put needs the parent in the store, or in a Put submitted before;
//     a Drop needs that there are no children. A tail has no children.
//  5. A Get that fails for another reason than deadline and cancellation removes the
//     extent, and with it what stands below it. Nothing is tried twice.
//  6. A Put of what is there does nothing. A Drop of what is not there fails with ErrMiss.
type Store interface {
	// Info is constant over the store's life.
	Info() StoreInfo
	// Submit begins an operation. It fails with ErrBusy while MaxOps are open, with
	// ErrInvalid where the operation can't be one of this store's, and with ErrClosed.
	// The Op's slices belong to the store until its Done.
	Submit(op Op) error
	// Cancel ends an operation soon, with ErrCanceled, unless it ends before. An
	// unknown number is ignored.
	Cancel(id OpID)
	// Poll appends the operations that have ended since the last call, in the order in
	// which they did.
	Poll(dst []Done) []Done
	// Ready gets a value after an operation has ended; one value may stand for several.
	Ready() <-chan struct{}
	// Contents appends the extents that the store knows, parents before children. A
	// store that other processes write to may know fewer than it has.
	Contents(dst []Extent) []Extent
	// Metrics says what the store holds and has done.
	Metrics() StoreMetrics
	// Close ends the store: operations that wait end with ErrClosed, those that run are
	// waited for. It gives back all that the store holds of the system. A second call
	// does nothing.
	Close() error
}

// StoreInfo describes a store.
type StoreInfo struct {
	Tier          kv.Tier
	Identity      Identity
	CapacityBytes int64    // of extents, headers included
	SlotBytes     int      // what an extent takes of it; a tail may take less
	MaxOps        int      // open operations
	Shared        bool     // other processes may add and remove extents
	Durable       bool     // what is in it outlives the process
	Direct        bool     // the system's page cache is passed by
	Others        []string // names of other models or versions at the same place, left alone
}

// OpID numbers an operation; the caller chooses it, anew for each.
type OpID uint64

// OpKind is what an [Op] does.
type OpKind uint8

// The kinds.
const (
	Put   OpKind = iota // Pages into the store
	Get                 // from the store into Pages
	Drop                // remove an extent
	Probe               // is an extent there, and how many of those that follow it?
	Flush               // make what is there outlive the process, the machine's crash included
)

var opNames = enum.New[OpKind]("mempool", "op", "put", "get", "drop", "probe", "flush")

func (k OpKind) String() string { return opNames.Name(k) }

// Op is one operation.
type Op struct {
	ID   OpID
	Kind OpKind
	// Extent is what to work on; Flush needs none. For a Get, Tokens and Media may be those
	// of fewer pages, from the first: the whole record is read and checked, and its
	// first pages are given. So a branch that parts within an extent uses what it shares.
	Extent Extent
	// Then are, for a Probe, the keys of the extents that follow Extent in its sequence, in
	// order. So one operation finds how much of a prompt a store has, also of what other
	// processes have written to a shared one since Contents.
	Then []Key
	// Pages are memory for Put and Get, PageBytes each, one for each page of Extent.
	Pages [][]byte
	// Sum is the checksum of Pages for a Put, 0 if not known. A Put of other bytes fails.
	Sum uint64
	// Deadline ends the operation with ErrDeadline; zero: none.
	Deadline time.Time
}

// Done is the ending of an [Op].
type Done struct {
	ID    OpID
	Kind  OpKind
	Key   Key
	Bytes int           // of pages that were moved; 0 for a Put of what was there
	Found int           // extents that a Probe found without a gap, from the first on
	Sum   uint64        // checksum of the record's pages, after a Put or Get
	Took  time.Duration // of the work, without the time in the queue
	Err   error
	// Gone are extents that are no longer in the store, because they could not be read
	// or stand below one that could not; children first.
	Gone []Key
}

// Errors of stores. An I/O error of the system is wrapped, so errors.Is finds it.
var (
	ErrInvalid  = errors.New("mempool: invalid operation")
	ErrBusy     = errors.New("mempool: too many operations open")
	ErrClosed   = errors.New("mempool: store closed")
	ErrMiss     = errors.New("mempool: no such extent")
	ErrFull     = errors.New("mempool: store full")
	ErrOrphan   = errors.New("mempool: parent is not in the store")
	ErrChildren = errors.New("mempool: extent has children")
	ErrCorrupt  = errors.New("mempool: record is damaged")
	ErrForeign  = errors.New("mempool: record of another model, type or version")
	ErrDeadline = errors.New("mempool: deadline passed")
	ErrCanceled = errors.New("mempool: canceled")
	ErrLocked   = errors.New("mempool: directory is in use by another process")
)

// CheckOp reports what makes op none of a store's with this identity.
func (id *Identity) CheckOp(op *Op) error {
	l := id.Layout
	switch op.Kind {
	case Flush:
		return nil
	case Drop, Probe:
		if op.Extent.Key.IsZero() {
			return fmt.Errorf("%w: %s of no extent", ErrInvalid, op.Kind)
		}
		return nil
	case Put:
		if err := l.Check(&op.Extent); err != nil {
			return err
		}
	case Get:
		if n := len(op.Extent.Tokens); n == 0 || n%l.PageTokens != 0 || n > l.ExtentTokens() {
			return fmt.Errorf("%w: a get of %d tokens", ErrInvalid, n)
		}
	default:
		return fmt.Errorf("%w: %s", ErrInvalid, op.Kind)
	}
	if len(op.Pages) != l.Pages(&op.Extent) {
		return fmt.Errorf("%w: memory for %d pages, the extent has %d", ErrInvalid, len(op.Pages), l.Pages(&op.Extent))
	}
	for _, p := range op.Pages {
		if len(p) != l.PageBytes {
			return fmt.Errorf("%w: memory of %d bytes for a page of %d", ErrInvalid, len(p), l.PageBytes)
		}
	}
	return nil
}

// CheckRead reports whether the record r, read as want.Key, answers the Get of want: its
// pages, or the first of them. A record with another key is damage; one with other
// tokens, or of another namespace, is none of those asked for: ErrMiss.
func (l Layout) CheckRead(r, want *Extent) error {
	if r.Key != want.Key {
		return fmt.Errorf("%w: %s stands where %s should", ErrCorrupt, r.Key.Short(), want.Key.Short())
	}
	if l.SharedPages(r, want) != l.Pages(want) {
		return fmt.Errorf("%w: %s holds other tokens, or of another namespace, than asked for", ErrMiss, r.Key.Short())
	}
	return nil
}
