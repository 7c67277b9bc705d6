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
// never wait for a copy or a disk; the work runs on goroutines that the store owns.
//
//  1. One ending. Each Op that Submit accepted gives exactly one Done, also after Close.
//     A store has no deadlines: its caller cancels an operation that takes too long, and
//     the operation then ends at once, even if the disk does not answer.
//  2. Whole or not at all. An extent can be found only after all its bytes are written.
//     A Get checks header, identity and checksum of everything that it reads.
//  3. Pages return to the caller with the Done. The store does not touch them after it,
//     even if the disk still works on an abandoned operation. After a failed Get their
//     contents are undefined.
//  4. Parents first. A Put needs the parent in the store, or in a Put submitted before.
//     A Drop needs an extent without children. A tail has no children.
//  5. After a Get that failed for another reason than deadline and cancellation, the store
//     no longer has the extent nor anything below it. Nothing is retried: a damaged copy
//     costs one computation, not a loop. A shared store removes the record only if its
//     own bytes prove it damaged. After any other error, which may be this process's
//     fault, it hides the record from this process for a while.
//  6. A Put of a present extent does nothing. A Drop of an absent one fails with
//     ErrMiss.
type Store interface {
	// Info is constant over the store's life.
	Info() StoreInfo
	// Submit begins an operation. Errors: ErrBusy while MaxOps are open, ErrStuck while
	// no call of the store returns, ErrInvalid if the operation can't be one of this
	// store's, ErrClosed. The Op's slices belong to the store until its Done.
	Submit(op Op) error
	// Cancel ends an operation at once with the error cause, ErrCanceled or ErrDeadline,
	// unless it has ended or is just taking effect. An unknown number is ignored.
	Cancel(id OpID, cause error)
	// Poll appends the operations that have ended since the last call, in the order of
	// their ends.
	Poll(dst []Done) []Done
	// Ready receives a value after an operation has ended; one value may stand for
	// several.
	Ready() <-chan struct{}
	// Contents appends the extents that the store knows, parents before children. A
	// store that other processes write to may have more than it knows.
	Contents(dst []Extent) []Extent
	// Metrics returns the contents and the counts of operations.
	Metrics() StoreMetrics
	// Close ends the store. Waiting operations end with ErrClosed; running ones are
	// awaited, however long their calls take. It releases all resources of the system.
	// A second call does nothing.
	Close() error
}

// StoreInfo describes a store.
type StoreInfo struct {
	Tier          kv.Tier
	Identity      Identity
	Dir           string   // its directory, "" if it has none
	CapacityBytes int64    // of extents, headers included
	SlotBytes     int      // taken by an extent; a tail may take less
	MaxOps        int      // open operations
	Shared        bool     // other processes may add and remove extents
	Durable       bool     // its contents outlive the process
	Direct        bool     // it bypasses the page cache of the system
	Others        []string // other models or versions at the same place, which it leaves alone
	Warnings      []string // faults found when it was opened that an operator should know
}

// OpID numbers an operation. The caller chooses it and never reuses it.
type OpID uint64

// OpKind is the kind of an [Op].
type OpKind uint8

// The kinds.
const (
	Put   OpKind = iota // Pages into the store
	Get                 // from the store into Pages
	Drop                // remove an extent
	Probe               // look for an extent, and count those that follow it
	Flush               // make the contents outlive the process, also a crash of the machine
)

var opNames = enum.New[OpKind]("mempool", "op", "put", "get", "drop", "probe", "flush")

func (k OpKind) String() string { return opNames.Name(k) }

// Op is one operation.
type Op struct {
	ID   OpID
	Kind OpKind
	// Extent to work on; Flush needs none. For a Get, Tokens and Media may be of fewer pages,
	// from the first: the whole record is read and checked, and its first pages are
	// returned. So a branch that parts inside an extent uses the shared pages.
	Extent Extent
	// Then has, for a Probe, the keys of the extents after Extent in its sequence, in order. So
	// one operation finds how much of a prompt a store has, including extents that other
	// processes have written to a shared store since Contents.
	Then []Key
	// Pages are memory for Put and Get, PageBytes each, one for each page of Extent.
	Pages [][]byte
	// Sum is the checksum of Pages (package checksum) for a Put, 0 if not known. A Put of other bytes fails.
	Sum uint64
}

// Done is the end of an [Op].
type Done struct {
	ID    OpID
	Kind  OpKind
	Key   Key
	Bytes int           // of moved pages; 0 for a Put of a present extent
	Found int           // extents that a Probe found without a gap, from the first on
	Sum   uint64        // checksum of the record's pages, after a Put or Get
	Took  time.Duration // without the time in the queue
	Err   error
	// Gone has the extents that the store removed because it could not read the extent or
	// one of its ancestors, children first.
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
	ErrForeign  = errors.New("mempool: record of another model, type, version or key")
	ErrDeadline = errors.New("mempool: deadline passed")
	ErrCanceled = errors.New("mempool: canceled")
	ErrLocked   = errors.New("mempool: directory is in use by another process")
)

// ErrStuck is the error of a store whose calls do not return. It is also an ErrBusy: the extents may
// be in the store all the same.
var ErrStuck error = stuck{}

type stuck struct{}

func (stuck) Error() string        { return "mempool: the store does not answer" }
func (stuck) Is(target error) bool { return target == ErrBusy }

// CheckOp returns the reason why op can not be an operation of a store with this
// identity, or nil.
func (id *Identity) CheckOp(op *Op) error {
	l := id.Layout
	switch op.Kind {
	case Flush:
		return nil
	case Drop, Probe:
		if op.Extent.Key.IsZero() {
			return fmt.Errorf("%w: %s without an extent", ErrInvalid, op.Kind)
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

// CheckRead returns nil if the record r, which a store found under want.Key, has all pages of
// want as its first pages, so that it can answer a Get of want. It returns ErrCorrupt if r has
// another key, and ErrMiss if r has other tokens, media or another namespace.
func (l Layout) CheckRead(r, want *Extent) error {
	if r.Key != want.Key {
		return fmt.Errorf("%w: found %s in the place of %s", ErrCorrupt, r.Key.Short(), want.Key.Short())
	}
	if l.SharedPages(r, want) != l.Pages(want) {
		return fmt.Errorf("%w: %s has other tokens or another namespace than requested", ErrMiss, r.Key.Short())
	}
	return nil
}
