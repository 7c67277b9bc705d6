package ptxvm

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// ErrMemory is wrapped by the error of Alloc if the device has too little memory.
var ErrMemory = errors.New("ptxvm: out of device memory")

// ErrLaunch is wrapped by the error of Launch for a launch beyond a device's limits.
var ErrLaunch = errors.New("ptxvm: bad launch")

// Config configures the simulated device. The zero value works.
type Config struct {
	MemoryBytes int `default:"4<<30"` // default 4 GiB; an allocation takes about seven times its size of host memory, one above 1 GiB only where it is used
	// MaxSharedBytes per block, default 227 KiB, as on an H100.
	MaxSharedBytes int `default:"227<<10"`
	// MaxInstructions of one launch, summed over threads, default 2^36.
	MaxInstructions int64 `default:"1<<36"`
}

// WithDefaults returns c with defaults for the fields that are zero.
func (c Config) WithDefaults() Config { return bounds.Fill(c) }

// Machine is a simulated device.
type Machine struct {
	config      Config
	next        uint64 // address of the next allocation
	used        int
	allocations []*allocation // by address
	fault       error

	streams []*stream
	events  []event
	ops     []operation // by opID
	floor   opID        // operations up to this one are before all that are pending
	current opID
	host    clock
	kernels map[string]*KernelStats
	blocks  map[*Kernel]*block // of each kernel's last launch
}

// KernelStats sums the launches of one kernel.
type KernelStats struct {
	Launches     int
	Instructions int64 // summed over threads
	ReadBytes    int64 // of global memory
	WrittenBytes int64
}

// New returns a new device.
func New(c Config) *Machine {
	return &Machine{config: c.WithDefaults(), next: firstAddress, ops: make([]operation, 1), kernels: map[string]*KernelStats{}, blocks: map[*Kernel]*block{}}
}

// Stats returns the sums of all launches so far of the kernel with that name.
func (m *Machine) Stats(kernel string) KernelStats { return *m.stats(kernel) }

func (m *Machine) stats(kernel string) *KernelStats {
	if m.kernels[kernel] == nil {
		m.kernels[kernel] = &KernelStats{}
	}
	return m.kernels[kernel]
}

// Launch configures a launch. Args has the kernel's parameters as in memory, each aligned to its
// size; the machine copies them.
type Launch struct {
	Grid, Block Dim
	SharedBytes int // dynamic
	Args        []byte
}

// Launch queues a kernel on a stream.
func (m *Machine) Launch(s Stream, k *Kernel, l Launch) error {
	if m.fault != nil {
		return m.fault
	}
	if err := m.fits(k, &l); err != nil {
		return fmt.Errorf("%w of %s: %v", ErrLaunch, k.Name, err)
	}
	l.Args = append([]byte(nil), l.Args...)
	m.enqueue(s, k.Name, func(op opID) error { return m.execute(k, &l, op) })
	return nil
}

func (m *Machine) fits(k *Kernel, l *Launch) error {
	switch n := l.Block.count(); {
	case min(l.Grid.X, l.Grid.Y, l.Grid.Z, l.Block.X, l.Block.Y, l.Block.Z) < 0:
		return fmt.Errorf("a grid of %v with blocks of %v", l.Grid, l.Block)
	case l.Grid.Y > 65535 || l.Grid.Z > 65535 || l.Grid.X > 1<<31-1:
		return fmt.Errorf("a grid of %v", l.Grid)
	case n > k.MaxThreads:
		return fmt.Errorf("blocks of %d threads, at most %d", n, k.MaxThreads)
	case l.Block.size().Y > 1 || l.Block.size().Z > 1:
		return fmt.Errorf("blocks of %v: kernels read the first dimension only", l.Block)
	case l.SharedBytes < 0 || k.SharedBytes+l.SharedBytes > m.config.MaxSharedBytes:
		return fmt.Errorf("%d bytes of shared memory, at most %d", k.SharedBytes+l.SharedBytes, m.config.MaxSharedBytes)
	case len(l.Args) != k.ParamBytes:
		return fmt.Errorf("%d bytes of parameters, want %d", len(l.Args), k.ParamBytes)
	}
	return nil
}

// execute runs a kernel now.
func (m *Machine) execute(k *Kernel, l *Launch, op opID) (err error) {
	b := m.blockOf(k, l, op)
	defer func() {
		if s, ok := recover().(*stop); ok {
			err = b.fault(s)
		} else if err == nil {
			b.stats.Launches++
		}
	}()
	for i := range b.grid.count() {
		b.run(i)
	}
	return nil
}
