package ptxvm

import "fmt"

// FaultKind classifies a fault on the device.
type FaultKind uint8

// The kinds.
const (
	OutOfBounds   FaultKind = iota // no allocation holds the bytes
	Misaligned                     // the address is not a multiple of the access size
	Uninitialised                  // nothing has written the bytes
	SharedRace                     // two threads, one writes, no barrier between them
	GlobalRace                     // the same in global memory, by two threads of a block
	BlockRace                      // two blocks of a kernel, one writes
	StreamRace                     // two operations, one writes, no stream or event orders them
	Divergence                     // threads of a warp or block at different barriers
	PendingCopy                    // access before the wait for an asynchronous copy
	Arithmetic                     // integer division by zero
	Endless                        // more than Config.MaxInstructions
)

var kindNames = [...]string{"access out of bounds", "misaligned access", "read of uninitialised memory", "race in shared memory",
	"race in global memory within a block", "race between blocks", "race between streams", "divergent barrier", "access to a copy that was not waited for",
	"division by zero", "kernel does not end"}

func (k FaultKind) String() string { return kindNames[k] }

// Fault is an error of a kernel or a copy. It ends the machine: all later calls return it, as calls of
// a driver do after a fault.
type Fault struct {
	Kind   FaultKind
	Kernel string // or the name of a copy
	Block  Dim
	Thread Dim // the lowest of several
	File   string
	Line   int
	Text   string // the instruction
	Detail string
}

func (f *Fault) Error() string {
	s := fmt.Sprintf("ptxvm: %v in %s", f.Kind, f.Kernel)
	if f.File != "" {
		s += fmt.Sprintf(", %s:%d, block %v thread %v", f.File, f.Line, f.Block, f.Thread)
	}
	if f.Detail != "" {
		s += ": " + f.Detail
	}
	if f.Text != "" {
		s += " (" + f.Text + ")"
	}
	return s
}

// Dim is the size of a grid or block, or an index in it. A size of 0 means 1.
type Dim struct{ X, Y, Z int }

func (d Dim) String() string { return fmt.Sprintf("(%d,%d,%d)", d.X, d.Y, d.Z) }

func (d Dim) size() Dim { return Dim{max(d.X, 1), max(d.Y, 1), max(d.Z, 1)} }

func (d Dim) count() int { d = d.size(); return d.X * d.Y * d.Z }

// at returns index i of a size; X varies fastest.
func (d Dim) at(i int) Dim { return Dim{i % d.X, i / d.X % d.Y, i / d.X / d.Y} }

// stop is the panic value of a fault inside an instruction; Launch recovers it and adds
// block, thread and source line.
type stop struct {
	kind   FaultKind
	lane   int
	detail string
}

func fail(kind FaultKind, lane int, format string, args ...any) {
	panic(&stop{kind, lane, fmt.Sprintf(format, args...)})
}
