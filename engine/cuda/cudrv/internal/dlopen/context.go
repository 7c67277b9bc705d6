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

// Unload implements cudrv.Context.
func (c *context) Unload(m cudrv.Module) error { return c.call(cuModuleUnload, uintptr(m)) }

// Function implements cudrv.Context.
func (c *context) Function(m cudrv.Module, name string) (cudrv.Function, error) {
	text := append([]byte(name), 0)
	var f cudrv.Function
	err := c.call(cuModuleGetFunction, uintptr(unsafe.Pointer(&f)), uintptr(m), uintptr(unsafe.Pointer(&text[0])))
	return f, err
}

// Attributes implements cudrv.Context.
func (c *context) Attributes(f cudrv.Function) (cudrv.Attributes, error) {
	var a cudrv.Attributes
	for attribute, to := range map[uintptr]*int{0: &a.MaxThreads, 1: &a.StaticShared, 3: &a.LocalBytes, 4: &a.Registers} {
		var v int32
		if err := c.call(cuFuncGetAttribute, uintptr(unsafe.Pointer(&v)), attribute, uintptr(f)); err != nil {
			return a, err
		}
		*to = int(v)
	}
	return a, nil
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
