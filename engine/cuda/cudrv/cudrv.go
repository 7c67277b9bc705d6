package cudrv

// Handles of a driver's objects. Zero means none.
type (
	Ptr       uint64 // device memory
	Module    uintptr
	Function  uintptr
	Stream    uintptr
	Event     uintptr
	Graph     uintptr
	GraphExec uintptr
)

// Driver gives access to the devices of one driver.
type Driver interface {
	// Name returns the driver's name, such as "ptxvm".
	Name() string
	// Version returns the newest CUDA that the driver supports, 13000 for 13.0.
	Version() (int, error)
	// Devices returns the number of devices.
	Devices() (int, error)
	// Properties returns the properties of device i.
	Properties(i int) (Properties, error)
	// Open retains the primary context of device i and makes it current for the calling thread.
	Open(i int) (Context, error)
}

// Properties of a device.
type Properties struct {
	Name               string
	Major, Minor       int // compute capability
	MemoryBytes        int
	Multiprocessors    int
	SharedPerBlock     int // bytes; the most that SetMaxDynamicShared accepts
	MaxThreadsPerBlock int

	// Highest clocks, width of the memory's bus, and L2; 0 in the interpreter.
	ClockKHz, MemoryClockKHz, BusBits, L2Bytes int
}

// Context is an open device.
type Context interface {
	// Bind makes the context current for the calling thread.
	Bind() error
	// Close releases the context and its memory without waiting: running work is lost.
	Close() error

	// MemInfo returns the bytes of device memory that are free, and in all.
	MemInfo() (free, total int, err error)
	// Alloc allocates n bytes, aligned to 256. It fails with ErrMemory.
	Alloc(n int) (Ptr, error)
	// Free frees an allocation. It waits for all work.
	Free(p Ptr) error
	// HostAlloc allocates pinned host memory. HostFree frees it.
	HostAlloc(n int) ([]byte, error)
	HostFree(b []byte) error

	// Load loads a module from PTX or a cubin.
	Load(image []byte) (Module, error)
	// Function returns a kernel of a module. It fails with ErrNotFound.
	Function(m Module, name string) (Function, error)
	// SetMaxDynamicShared allows launches of f with up to bytes bytes of dynamic shared memory. It
	// is needed if static and dynamic shared memory exceed 48 KiB.
	SetMaxDynamicShared(f Function, bytes int) error
	// Launch queues a kernel; its arguments are copied.
	Launch(f Function, l Launch) error

	NewStream() (Stream, error)
	// SyncStream waits for all work queued on s.
	SyncStream(s Stream) error

	NewEvent() (Event, error)
	// Record makes e mark the work queued on s so far.
	Record(e Event, s Stream) error
	// Wait makes the work that is queued on s after this call wait for the work that e marks now.
	Wait(s Stream, e Event) error
	// SyncEvent waits for the marked work.
	SyncEvent(e Event) error
	// Elapsed returns the device's time between two events, in ns. It fails if one of them is still pending.
	Elapsed(from, to Event) (int64, error)

	// CopyIn, CopyOut, CopyWithin and Fill queue work. Host memory must come from HostAlloc.
	CopyIn(s Stream, dst Ptr, src []byte) error
	CopyOut(s Stream, dst []byte, src Ptr) error
	CopyWithin(s Stream, dst, src Ptr, n int) error
	Fill(s Stream, dst Ptr, value byte, n int) error
	// Fill32 fills n words.
	Fill32(s Stream, dst Ptr, value uint32, n int) error

	// BeginCapture makes s record its work in a graph instead of queueing it, until EndCapture
	// returns the graph.
	BeginCapture(s Stream) error
	EndCapture(s Stream) (Graph, error)
	Instantiate(g Graph) (GraphExec, error)
	// LaunchGraph queues all work of a graph.
	LaunchGraph(x GraphExec, s Stream) error
	DestroyGraph(g Graph) error
	DestroyGraphExec(x GraphExec) error
}

// Launch configures a launch. Grid and block sizes of 0 mean 1.
type Launch struct {
	Grid, Block [3]int
	SharedBytes int // dynamic
	Stream      Stream
	Args        []byte // as returned by the function Args
}
