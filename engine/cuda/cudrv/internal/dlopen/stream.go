//go:build linux && (amd64 || arm64) && (cgo || purego)

package dlopen

import (
	"errors"
	"unsafe"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
)

// NewStream implements cudrv.Context.
func (c *context) NewStream() (cudrv.Stream, error) {
	var s cudrv.Stream
	err := c.call(cuStreamCreate, uintptr(unsafe.Pointer(&s)), streamNonBlocking)
	return s, err
}

// DestroyStream implements cudrv.Context.
func (c *context) DestroyStream(s cudrv.Stream) error { return c.call(cuStreamDestroy, uintptr(s)) }

// StreamDone implements cudrv.Context.
func (c *context) StreamDone(s cudrv.Stream) (bool, error) {
	return ready(c.call(cuStreamQuery, uintptr(s)))
}

// ready converts the result of a query: CUDA_ERROR_NOT_READY means false, not an error.
func ready(err error) (bool, error) {
	var e *cudrv.Error
	if errors.As(err, &e) && e.Code == cudrv.CodeNotReady {
		return false, nil
	}
	return err == nil, err
}

// SyncStream implements cudrv.Context.
func (c *context) SyncStream(s cudrv.Stream) error { return c.call(cuStreamSynchronize, uintptr(s)) }

// NewEvent implements cudrv.Context.
func (c *context) NewEvent() (cudrv.Event, error) {
	var e cudrv.Event
	err := c.call(cuEventCreate, uintptr(unsafe.Pointer(&e)), eventBlockingSync)
	return e, err
}

// DestroyEvent implements cudrv.Context.
func (c *context) DestroyEvent(e cudrv.Event) error { return c.call(cuEventDestroy, uintptr(e)) }

// Record implements cudrv.Context.
func (c *context) Record(e cudrv.Event, s cudrv.Stream) error {
	return c.call(cuEventRecord, uintptr(e), uintptr(s))
}

// Wait implements cudrv.Context.
func (c *context) Wait(s cudrv.Stream, e cudrv.Event) error {
	return c.call(cuStreamWaitEvent, uintptr(s), uintptr(e), 0)
}

// EventDone implements cudrv.Context.
func (c *context) EventDone(e cudrv.Event) (bool, error) {
	return ready(c.call(cuEventQuery, uintptr(e)))
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
