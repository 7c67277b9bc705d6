package blockio

import (
	"io"
	"sync"
	"syscall"
)

// Point is a kind of call in which a fault may be planted.
type Point uint8

// The points.
const (
	Read Point = iota
	Write
	Sync
	Create // creation of a file, or reservation of room in one
	Rename
	Remove
	Lookup // opening of an existing file, or a question for its size and times
	Close
	points
)

var pointNames = [...]string{"read", "write", "sync", "create", "rename", "remove", "lookup", "close"}

func (p Point) String() string { return pointNames[p] }

// Points returns all points.
func Points() (all []Point) {
	for p := range points {
		all = append(all, p)
	}
	return all
}

// Fault is a kind of failure.
type Fault uint8

// The faults.
const (
	NoFault   Fault = iota
	ShortRead       // half of the bytes, as at the end of a file
	FlipBit         // one bit of the bytes moved is flipped, without an error
	NoSpace         // ENOSPC
	IOError         // EIO
	NoEntry         // ENOENT, as after another process removed the file
	Slow            // the call waits until Clear
	SlowError       // the call waits until Clear, then fails with EIO
	NoFiles         // EMFILE: the process has no free descriptor
	Stale           // ESTALE, as on a network file system whose server has restarted
	Refused         // EACCES
)

var faultNames = [...]string{"none", "short read", "flipped bit", "ENOSPC", "EIO", "ENOENT", "slow", "slow and EIO", "EMFILE", "ESTALE", "EACCES"}

func (f Fault) String() string { return faultNames[f] }

// Injector plants one fault at one kind of call at a time. A nil Injector plants none. It is safe
// for concurrent use.
type Injector struct {
	mu      sync.Mutex
	point   Point
	fault   Fault
	in      int // calls until the fault: it hits when this becomes 0
	forever bool
	hits    int
	gate    chan struct{}
	stuck   chan struct{}
}

// Plant makes a later call at point p have fault f: the next call if nth is 1, the one after it if
// nth is 2, and so on. If forever is true, all later calls at p have the fault too. Plant replaces
// the previous fault.
func (in *Injector) Plant(p Point, f Fault, nth int, forever bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.point, in.fault, in.in, in.forever = p, f, nth, forever
	in.hits = 0
	if f.waits() {
		in.gate, in.stuck = make(chan struct{}), make(chan struct{}, 1024)
	}
}

func (f Fault) waits() bool { return f == Slow || f == SlowError }

// Clear removes the fault and lets slow calls continue.
func (in *Injector) Clear() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.fault = NoFault
	if in.gate != nil {
		close(in.gate)
		in.gate = nil
	}
}

// Stuck returns a channel that gets a value for each call that starts to wait in a Slow fault.
func (in *Injector) Stuck() <-chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.stuck
}

// Hits returns the number of calls that had the fault since Plant.
func (in *Injector) Hits() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.hits
}

// next counts a call and returns its fault. A slow call waits here.
func (in *Injector) next(p Point) Fault {
	if in == nil {
		return NoFault
	}
	in.mu.Lock()
	f := NoFault
	if in.fault != NoFault && in.point == p {
		if in.in--; in.in == 0 || in.in < 0 && in.forever {
			f = in.fault
			in.hits++
		}
	}
	gate, stuck := in.gate, in.stuck
	in.mu.Unlock()
	if f.waits() {
		stuck <- struct{}{}
		<-gate
		if f == SlowError {
			return IOError
		}
		return NoFault
	}
	return f
}

func (f Fault) err() error {
	switch f {
	case NoSpace:
		return syscall.ENOSPC
	case IOError:
		return syscall.EIO
	case NoEntry:
		return syscall.ENOENT
	case NoFiles:
		return syscall.EMFILE
	case Stale:
		return stale
	case Refused:
		return syscall.EACCES
	case ShortRead:
		return io.ErrUnexpectedEOF
	}
	return nil
}

// Do calls call, which moves no bytes, and returns its error. If a fault with an error is planted
// there, Do returns that error instead and does not call.
func (in *Injector) Do(p Point, call func() error) error {
	if err := in.next(p).err(); err != nil {
		return err
	}
	return call()
}

// Move calls call, which reads or writes the bytes of b, and returns its results or those of a fault
// that is planted at p. FlipBit on a write flips a bit of b only while call runs.
func (in *Injector) Move(p Point, b []byte, call func() (int, error)) (int, error) {
	f := in.next(p)
	flip := func() {
		if f == FlipBit && len(b) > 0 {
			b[len(b)/2] ^= 4
		}
	}
	if err := f.err(); err != nil && f != ShortRead {
		return 0, err
	}
	if p == Write {
		flip()
		defer flip()
		if f == ShortRead {
			return len(b) / 2, io.ErrShortWrite
		}
		return call()
	}
	n, err := call()
	if f == ShortRead {
		return n / 2, nil
	}
	flip()
	return n, err
}
