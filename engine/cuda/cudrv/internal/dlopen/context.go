//go:build linux && (amd64 || arm64) && (cgo || purego)

package dlopen

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
)

// context is a device's primary context.
type context struct {
	*Driver
	device uintptr
	handle uintptr
	closed atomic.Bool
}

var _ cudrv.Context = (*context)(nil)

// Flags of the driver API.
const (
	hostPortable      = 1 // pinned for all contexts
	streamNonBlocking = 1 // does not wait for the default stream
	eventBlockingSync = 1 // waiting threads sleep
	captureThread     = 1 // other threads may allocate during capture
	maxDynamicShared  = 8
	jitErrorLog       = 5
	jitErrorLogBytes  = 6
)

var (
	errSize   = errors.New("dlopen: no bytes")
	errClosed = errors.New("dlopen: the context is closed")
)

func invalid(f function, err error) error {
	return &cudrv.Error{Call: names[f], Code: cudrv.CodeInvalidValue, Err: err}
}

// Bind implements cudrv.Context.
func (c *context) Bind() error {
	if c.closed.Load() {
		return invalid(cuCtxSetCurrent, errClosed)
	}
	return c.call(cuCtxSetCurrent, c.handle)
}

// Close implements cudrv.Context.
func (c *context) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	return c.call(cuDevicePrimaryCtxRelease, c.device)
}

// MemInfo implements cudrv.Context.
func (c *context) MemInfo() (free, total int, err error) {
	var f, t uint64
	err = c.call(cuMemGetInfo, uintptr(unsafe.Pointer(&f)), uintptr(unsafe.Pointer(&t)))
	return int(f), int(t), err
}

// Alloc implements cudrv.Context.
func (c *context) Alloc(n int) (cudrv.Ptr, error) {
	if n <= 0 {
		return 0, invalid(cuMemAlloc, errSize)
	}
	var p cudrv.Ptr
	err := c.call(cuMemAlloc, uintptr(unsafe.Pointer(&p)), uintptr(n))
	return p, err
}

// Free implements cudrv.Context.
func (c *context) Free(p cudrv.Ptr) error { return c.call(cuMemFree, uintptr(p)) }

// HostAlloc implements cudrv.Context.
func (c *context) HostAlloc(n int) ([]byte, error) {
	if n <= 0 {
		return nil, invalid(cuMemHostAlloc, errSize)
	}
	var p unsafe.Pointer
	if err := c.call(cuMemHostAlloc, uintptr(unsafe.Pointer(&p)), uintptr(n), hostPortable); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), n), nil
}

// HostFree implements cudrv.Context.
func (c *context) HostFree(b []byte) error {
	return c.call(cuMemFreeHost, uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// Load implements cudrv.Context. The error has what the driver's assembler said.
func (c *context) Load(image []byte) (cudrv.Module, error) {
	image = append(bytes.Clone(image), 0) // PTX is a C string
	log := make([]byte, 8<<10)
	options := [2]uint32{jitErrorLog, jitErrorLogBytes}
	values := [2]uintptr{uintptr(unsafe.Pointer(&log[0])), uintptr(len(log))}
	var m cudrv.Module
	err := c.callWith(uintptr(unsafe.Pointer(&log[0])), cuModuleLoadDataEx, uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(&image[0])),
		uintptr(len(options)), uintptr(unsafe.Pointer(&options)), uintptr(unsafe.Pointer(&values)))
	if text, _, _ := bytes.Cut(log, []byte{0}); err != nil && len(text) > 0 {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(text))
	}
	return m, err
}

// Function implements cudrv.Context.
func (c *context) Function(m cudrv.Module, name string) (cudrv.Function, error) {
	text := append([]byte(name), 0)
	var f cudrv.Function
	err := c.call(cuModuleGetFunction, uintptr(unsafe.Pointer(&f)), uintptr(m), uintptr(unsafe.Pointer(&text[0])))
	return f, err
}

// SetMaxDynamicShared implements cudrv.Context.
func (c *context) SetMaxDynamicShared(f cudrv.Function, n int) error {
	return c.call(cuFuncSetAttribute, uintptr(f), maxDynamicShared, uintptr(n))
}

// parameters is the "extra" argument of cuLaunchKernel: pairs of a kind and a value.
type parameters struct {
	extra [5]uintptr
	size  uint64
}

// Launch implements cudrv.Context.
func (c *context) Launch(f cudrv.Function, l cudrv.Launch) error {
	args := l.Args
	if len(args) == 0 {
		args = make([]byte, 1)
	}
	p := &parameters{size: uint64(len(l.Args))}
	p.extra = [5]uintptr{1, uintptr(unsafe.Pointer(&args[0])), 2, uintptr(unsafe.Pointer(&p.size)), 0}
	one := func(n int) uintptr { return uintptr(max(n, 1)) }
	return c.callWith(uintptr(unsafe.Pointer(&args[0])), cuLaunchKernel, uintptr(f), one(l.Grid[0]), one(l.Grid[1]), one(l.Grid[2]),
		one(l.Block[0]), one(l.Block[1]), one(l.Block[2]), uintptr(l.SharedBytes), uintptr(l.Stream), 0, uintptr(unsafe.Pointer(p)))
}

// callWith makes a call whose arguments contain the address of kept as a number. Passing kept moves
// it to the heap, where it does not move, and keeps it alive.
//
//go:uintptrescapes
func (c *context) callWith(kept uintptr, f function, args ...uintptr) error {
	_ = kept
	return c.call(f, args...)
}

// NewStream implements cudrv.Context.
func (c *context) NewStream() (cudrv.Stream, error) {
	var s cudrv.Stream
	err := c.call(cuStreamCreate, uintptr(unsafe.Pointer(&s)), streamNonBlocking)
	return s, err
}

// SyncStream implements cudrv.Context.
func (c *context) SyncStream(s cudrv.Stream) error { return c.call(cuStreamSynchronize, uintptr(s)) }

// NewEvent implements cudrv.Context.
func (c *context) NewEvent() (cudrv.Event, error) {
	var e cudrv.Event
	err := c.call(cuEventCreate, uintptr(unsafe.Pointer(&e)), eventBlockingSync)
	return e, err
}

// Record implements cudrv.Context.
func (c *context) Record(e cudrv.Event, s cudrv.Stream) error {
	return c.call(cuEventRecord, uintptr(e), uintptr(s))
}

// Wait implements cudrv.Context.
func (c *context) Wait(s cudrv.Stream, e cudrv.Event) error {
	return c.call(cuStreamWaitEvent, uintptr(s), uintptr(e), 0)
}

// SyncEvent implements cudrv.Context.
func (c *context) SyncEvent(e cudrv.Event) error { return c.call(cuEventSynchronize, uintptr(e)) }

// Elapsed implements cudrv.Context.
func (c *context) Elapsed(from, to cudrv.Event) (int64, error) {
	var ms float32
	err := c.call(cuEventElapsedTime, uintptr(unsafe.Pointer(&ms)), uintptr(from), uintptr(to))
	return int64(float64(ms) * 1e6), err
}

// CopyIn implements cudrv.Context.
func (c *context) CopyIn(s cudrv.Stream, dst cudrv.Ptr, src []byte) error {
	return c.call(cuMemcpyHtoDAsync, uintptr(dst), uintptr(unsafe.Pointer(unsafe.SliceData(src))), uintptr(len(src)), uintptr(s))
}

// CopyOut implements cudrv.Context.
func (c *context) CopyOut(s cudrv.Stream, dst []byte, src cudrv.Ptr) error {
	return c.call(cuMemcpyDtoHAsync, uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(src), uintptr(len(dst)), uintptr(s))
}

// CopyWithin implements cudrv.Context.
func (c *context) CopyWithin(s cudrv.Stream, dst, src cudrv.Ptr, n int) error {
	return c.call(cuMemcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(n), uintptr(s))
}

// Fill implements cudrv.Context.
func (c *context) Fill(s cudrv.Stream, dst cudrv.Ptr, value byte, n int) error {
	return c.call(cuMemsetD8Async, uintptr(dst), uintptr(value), uintptr(n), uintptr(s))
}

// Fill32 implements cudrv.Context.
func (c *context) Fill32(s cudrv.Stream, dst cudrv.Ptr, value uint32, n int) error {
	return c.call(cuMemsetD32Async, uintptr(dst), uintptr(value), uintptr(n), uintptr(s))
}

// BeginCapture implements cudrv.Context.
func (c *context) BeginCapture(s cudrv.Stream) error {
	return c.call(cuStreamBeginCapture, uintptr(s), captureThread)
}

// EndCapture implements cudrv.Context.
func (c *context) EndCapture(s cudrv.Stream) (cudrv.Graph, error) {
	var g cudrv.Graph
	err := c.call(cuStreamEndCapture, uintptr(s), uintptr(unsafe.Pointer(&g)))
	return g, err
}

// Instantiate implements cudrv.Context.
func (c *context) Instantiate(g cudrv.Graph) (cudrv.GraphExec, error) {
	var x cudrv.GraphExec
	err := c.call(cuGraphInstantiate, uintptr(unsafe.Pointer(&x)), uintptr(g), 0)
	return x, err
}

// LaunchGraph implements cudrv.Context.
func (c *context) LaunchGraph(x cudrv.GraphExec, s cudrv.Stream) error {
	return c.call(cuGraphLaunch, uintptr(x), uintptr(s))
}

// DestroyGraph implements cudrv.Context.
func (c *context) DestroyGraph(g cudrv.Graph) error { return c.call(cuGraphDestroy, uintptr(g)) }

// DestroyGraphExec implements cudrv.Context.
func (c *context) DestroyGraphExec(x cudrv.GraphExec) error {
	return c.call(cuGraphExecDestroy, uintptr(x))
}
