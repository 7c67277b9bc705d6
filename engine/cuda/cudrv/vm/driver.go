package vm

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

// defaultShared is the shared memory that a launch may use without SetMaxDynamicShared.
const defaultShared = 48 << 10

// Driver has one device. All its contexts share the decoded modules.
type Driver struct {
	config ptxvm.Config

	mu      sync.Mutex
	decoded map[[sha256.Size]byte]*ptxvm.Module // by hash of the text
}

// New returns a driver. Each Open returns a new device of that configuration.
func New(c ptxvm.Config) *Driver {
	return &Driver{config: c.WithDefaults(), decoded: map[[sha256.Size]byte]*ptxvm.Module{}}
}

// decode parses PTX, once for each text.
func (d *Driver) decode(text []byte) (*ptxvm.Module, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sum := sha256.Sum256(text)
	if m := d.decoded[sum]; m != nil {
		return m, nil
	}
	m, err := ptxvm.Parse("module", text)
	if err == nil {
		d.decoded[sum] = m
	}
	return m, err
}

// Name returns "ptxvm".
func (d *Driver) Name() string { return "ptxvm" }

// Version returns the CUDA version of the kernels' PTX.
func (d *Driver) Version() (int, error) { return 13000, nil }

// Devices returns 1.
func (d *Driver) Devices() (int, error) { return 1, nil }

// Properties returns the properties of device 0.
func (d *Driver) Properties(i int) (cudrv.Properties, error) {
	if i != 0 {
		return cudrv.Properties{}, fail("cuDeviceGet", cudrv.CodeInvalidDevice, fmt.Errorf("device %d of 1", i))
	}
	return cudrv.Properties{Name: "PTX interpreter", Major: 8, MemoryBytes: d.config.MemoryBytes, Multiprocessors: 1,
		SharedPerBlock: d.config.MaxSharedBytes, MaxThreadsPerBlock: 1024}, nil
}

// Open returns a new device.
func (d *Driver) Open(i int) (cudrv.Context, error) {
	if _, err := d.Properties(i); err != nil {
		return nil, err
	}
	return d.OpenDevice(), nil
}

// Context is an open device.
type Context struct {
	mu     sync.Mutex
	driver *Driver
	config ptxvm.Config
	m      *ptxvm.Machine
	closed bool
	pinned map[*byte][]byte
	next   uintptr // last handle

	modules   map[cudrv.Module]*ptxvm.Module
	functions map[cudrv.Function]*function
	streams   map[cudrv.Stream]*stream
	events    map[cudrv.Event]ptxvm.Event
	graphs    map[cudrv.Graph]*graph
	execs     map[cudrv.GraphExec]*graph
}

type function struct {
	kernel  *ptxvm.Kernel
	dynamic int // bytes of dynamic shared memory allowed
}

type stream struct {
	id      ptxvm.Stream
	capture *graph // records the work if not nil
}

// graph is captured work, in order.
type graph struct {
	work []func(s ptxvm.Stream) error
}

// OpenDevice opens the only device.
func (d *Driver) OpenDevice() *Context {
	c, m := d.config, ptxvm.New(d.config)
	return &Context{driver: d, config: c, m: m, pinned: map[*byte][]byte{}, modules: map[cudrv.Module]*ptxvm.Module{}, functions: map[cudrv.Function]*function{},
		streams: map[cudrv.Stream]*stream{0: {id: m.NewStream()}}, // the default stream, for which no other waits
		events:  map[cudrv.Event]ptxvm.Event{},
		graphs:  map[cudrv.Graph]*graph{}, execs: map[cudrv.GraphExec]*graph{}}
}

// Machine returns the interpreter, which counts bytes and instructions. The Context must not
// be used while the caller uses it.
func (c *Context) Machine() *ptxvm.Machine { return c.m }

func fail(call string, code int, err error) error {
	return &cudrv.Error{Call: call, Code: code, Err: err}
}

var (
	errHandle = errors.New("vm: no such handle")
	errClosed = errors.New("vm: the context is closed")
	errPinned = errors.New("vm: host memory does not come from HostAlloc")
	// errCapture reports a wait for a stream that is capturing.
	errCapture = errors.New("vm: the stream is capturing")
)

// check converts an error of the interpreter to one of the driver. It returns the driver's own
// errors as they are.
func check(call string, err error) error {
	var f *ptxvm.Fault
	var own *cudrv.Error
	switch {
	case err == nil || errors.As(err, &own):
		return err
	case errors.Is(err, errCapture):
		return fail(call, cudrv.CodeCaptureForbidden, err)
	case errors.Is(err, ptxvm.ErrMemory):
		return fail(call, cudrv.CodeOutOfMemory, err)
	case errors.As(err, &f) && f.Kind == ptxvm.Misaligned:
		return fail(call, cudrv.CodeMisaligned, err)
	case errors.As(err, &f) && f.Kind == ptxvm.OutOfBounds:
		return fail(call, cudrv.CodeIllegalAddress, err)
	case errors.As(err, &f) && f.Kind == ptxvm.Endless:
		return fail(call, cudrv.CodeLaunchTimeout, err)
	case errors.As(err, &f):
		return fail(call, cudrv.CodeLaunchFailed, err)
	}
	return fail(call, cudrv.CodeInvalidValue, err)
}

// add returns a new handle of object v.
func add[H ~uintptr, V any](c *Context, all map[H]V, v V) H {
	c.next++
	all[H(c.next)] = v
	return H(c.next)
}

// lookup returns the object of a handle.
func lookup[H comparable, V any](c *Context, call string, all map[H]V, h H) (V, error) {
	v, ok := all[h]
	if c.closed {
		return v, fail(call, cudrv.CodeInvalidValue, errClosed)
	}
	if !ok {
		return v, fail(call, cudrv.CodeInvalidHandle, errHandle)
	}
	return v, nil
}

// on calls do for the object of a handle, and returns its error as one of the driver. It holds the
// lock meanwhile.
func on[H comparable, V any](c *Context, call string, all map[H]V, h H, do func(V) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, err := lookup(c, call, all, h)
	if err != nil {
		return err
	}
	return check(call, do(v))
}

// destroy removes the object of a handle.
func destroy[H comparable, V any](c *Context, call string, all map[H]V, h H) error {
	return on(c, call, all, h, func(V) error {
		delete(all, h)
		return nil
	})
}

// Bind does nothing: the interpreter has no threads.
func (c *Context) Bind() error { return nil }

// Close frees the device.
func (c *Context) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed, c.m, c.pinned = true, ptxvm.New(c.config), nil
	return nil
}

// MemInfo implements cudrv.Context.
func (c *Context) MemInfo() (free, total int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.config.MemoryBytes - c.m.UsedBytes(), c.config.MemoryBytes, nil
}

// Alloc implements cudrv.Context.
func (c *Context) Alloc(n int) (cudrv.Ptr, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || n <= 0 {
		return 0, fail("cuMemAlloc", cudrv.CodeInvalidValue, fmt.Errorf("%d bytes", n))
	}
	p, err := c.m.Alloc(n)
	return cudrv.Ptr(p), check("cuMemAlloc", err)
}

// Free implements cudrv.Context.
func (c *Context) Free(p cudrv.Ptr) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return check("cuMemFree", c.m.Free(uint64(p)))
}

// HostAlloc implements cudrv.Context.
func (c *Context) HostAlloc(n int) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || n <= 0 {
		return nil, fail("cuMemHostAlloc", cudrv.CodeInvalidValue, fmt.Errorf("%d bytes", n))
	}
	b := make([]byte, n)
	c.pinned[unsafe.SliceData(b)] = b
	return b, nil
}

// HostFree implements cudrv.Context. It waits for all work, which may use b.
func (c *Context) HostFree(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pinned[unsafe.SliceData(b)] == nil {
		return fail("cuMemFreeHost", cudrv.CodeInvalidValue, errPinned)
	}
	delete(c.pinned, unsafe.SliceData(b))
	return check("cuMemFreeHost", c.m.Sync())
}

// isPinned reports whether b is in memory of HostAlloc.
func (c *Context) isPinned(b []byte) bool {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	for from, all := range c.pinned {
		if base := uintptr(unsafe.Pointer(from)); p >= base && p+uintptr(len(b)) <= base+uintptr(len(all)) {
			return true
		}
	}
	return false
}
