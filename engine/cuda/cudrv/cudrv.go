package cudrv

// Handles of what a driver made. A zero handle is none.
type (
	Ptr       uint64 // device memory
	Module    uintptr
	Function  uintptr
	Stream    uintptr
	Event     uintptr
	Graph     uintptr
	GraphExec uintptr
)

// Driver is one way to reach devices.
type Driver interface {
	// Name says which one: "ptxvm".
	Name() string
	// Version is the newest CUDA that the driver knows, 13000 for 13.0.
	Version() (int, error)
	// Devices is how many there are.
	Devices() (int, error)
	// Properties describes device i.
	Properties(i int) (Properties, error)
	// Open retains the primary context of device i and binds it to this thread.
	Open(i int) (Context, error)
}

// Properties of a device.
type Properties struct {
	Name               string
	Major, Minor       int // compute capability
	MemoryBytes        int
	Multiprocessors    int
	SharedPerBlock     int // bytes, by SetMaxDynamicShared at most
	MaxThreadsPerBlock int
}

// Context is a device in use.
type Context interface {
	// Bind makes the context current for the calling thread.
	Bind() error
	// Close waits for nothing: what runs is lost. The memory goes back.
	Close() error

	// MemInfo is how much device memory is free, and how much there is.
	MemInfo() (free, total int, err error)
	// Alloc makes n bytes, aligned to 256. It fails with ErrMemory.
	Alloc(n int) (Ptr, error)
	// Free gives an allocation back. It waits for all work.
	Free(p Ptr) error
	// HostAlloc makes pinned host memory, which only HostFree ends.
	HostAlloc(n int) ([]byte, error)
	HostFree(b []byte) error

	// Load takes PTX or a cubin.
	Load(image []byte) (Module, error)
	Unload(m Module) error
	// Function fails with ErrNotFound if the module has none of that name.
	Function(m Module, name string) (Function, error)
	// Attributes of a function as compiled.
	Attributes(f Function) (Attributes, error)
	// SetMaxDynamicShared allows launches with that much dynamic shared memory:
	// beyond 48 KiB, with the static one, it must be asked for.
	SetMaxDynamicShared(f Function, bytes int) error
	// Launch queues a kernel; its arguments are copied.
	Launch(f Function, l Launch) error

	NewStream() (Stream, error)
	DestroyStream(s Stream) error
	// StreamDone reports whether all work of s is done.
	StreamDone(s Stream) (bool, error)
	// SyncStream waits for all work of s.
	SyncStream(s Stream) error

	NewEvent() (Event, error)
	DestroyEvent(e Event) error
	// Record marks what s has been given so far.
	Record(e Event, s Stream) error
	// Wait has further work of s wait for what e has marked now.
	Wait(s Stream, e Event) error
	// EventDone reports whether what e has marked is done.
	EventDone(e Event) (bool, error)
	// SyncEvent waits for what e has marked.
	SyncEvent(e Event) error
	// Elapsed is the device's time between two events, in ns.
	Elapsed(from, to Event) (int64, error)

	// CopyIn, CopyOut, CopyWithin and Fill queue work. Host memory is of HostAlloc.
	CopyIn(s Stream, dst Ptr, src []byte) error
	CopyOut(s Stream, dst []byte, src Ptr) error
	CopyWithin(s Stream, dst, src Ptr, n int) error
	Fill(s Stream, dst Ptr, value byte, n int) error
	// Fill32 fills n words.
	Fill32(s Stream, dst Ptr, value uint32, n int) error

	// BeginCapture has s collect its work instead of queueing it, until EndCapture.
	BeginCapture(s Stream) error
	EndCapture(s Stream) (Graph, error)
	Instantiate(g Graph) (GraphExec, error)
	// LaunchGraph queues all work of a graph at once.
	LaunchGraph(x GraphExec, s Stream) error
	DestroyGraph(g Graph) error
	DestroyGraphExec(x GraphExec) error
}

// Attributes of a function.
type Attributes struct {
	StaticShared int // bytes
	Registers    int // of a thread; 0 where it is not known
	LocalBytes   int // of a thread: spilled registers and arrays
	MaxThreads   int // of a block
}

// Launch is how to launch a function. Sizes of 0 are 1.
type Launch struct {
	Grid, Block [3]int
	SharedBytes int // dynamic
	Stream      Stream
	Args        []byte // as Args makes them
}
