//go:build cuda && linux

package cu

import (
	"bytes"
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
)

// Gorgonia's handles are structs of one pointer; cudrv's handles are that pointer as a number.

func handle[T ~uintptr, H any](h H) T { return *(*T)(unsafe.Pointer(&h)) }

func of[H any, T ~uintptr](v T) H { return *(*H)(unsafe.Pointer(&v)) }

func stream(s cudrv.Stream) cu.Stream { return of[cu.Stream](s) }

func event(e cudrv.Event) cu.Event { return of[cu.Event](e) }

// MemInfo implements cudrv.Context.
func (c *context) MemInfo() (free, total int, err error) {
	f, t, err := cu.MemInfo()
	return int(f), int(t), check("cuMemGetInfo", err)
}

// Alloc implements cudrv.Context.
func (c *context) Alloc(n int) (cudrv.Ptr, error) {
	if n <= 0 {
		return 0, invalid("cuMemAlloc", errSize)
	}
	p, err := cu.MemAlloc(int64(n))
	return cudrv.Ptr(p), check("cuMemAlloc", err)
}

// Free implements cudrv.Context.
func (c *context) Free(p cudrv.Ptr) error { return check("cuMemFree", cu.MemFree(cu.DevicePtr(p))) }

// HostFree implements cudrv.Context.
func (c *context) HostFree(b []byte) error {
	return check("cuMemFreeHost", cu.MemFreeHost(unsafe.Pointer(unsafe.SliceData(b))))
}

// Load implements cudrv.Context. The error has what the driver's assembler said.
func (c *context) Load(image []byte) (cudrv.Module, error) {
	log := &cu.JITErrorLogBuffer{Buffer: make([]byte, 8<<10)}
	m, err := cu.LoadDataEx(string(image), log)
	if err != nil {
		err = check("cuModuleLoadDataEx", err)
		if text, _, _ := bytes.Cut(log.Buffer, []byte{0}); len(text) > 0 {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(text))
		}
	}
	return handle[cudrv.Module](m), err
}

// Function implements cudrv.Context.
func (c *context) Function(m cudrv.Module, name string) (cudrv.Function, error) {
	f, err := of[cu.Module](m).Function(name)
	return handle[cudrv.Function](f), check("cuModuleGetFunction", err)
}

// NewStream implements cudrv.Context.
func (c *context) NewStream() (cudrv.Stream, error) {
	s, err := cu.MakeStream(cu.NonBlocking)
	return handle[cudrv.Stream](s), check("cuStreamCreate", err)
}

// SyncStream implements cudrv.Context.
func (c *context) SyncStream(s cudrv.Stream) error {
	return check("cuStreamSynchronize", stream(s).Synchronize())
}

// NewEvent implements cudrv.Context. A thread that waits for the event sleeps.
func (c *context) NewEvent() (cudrv.Event, error) {
	e, err := cu.MakeEvent(cu.BlockingSyncEvent)
	return handle[cudrv.Event](e), check("cuEventCreate", err)
}

// Record implements cudrv.Context.
func (c *context) Record(e cudrv.Event, s cudrv.Stream) error {
	return check("cuEventRecord", event(e).Record(stream(s)))
}

// Wait implements cudrv.Context.
func (c *context) Wait(s cudrv.Stream, e cudrv.Event) error {
	return check("cuStreamWaitEvent", stream(s).Wait(event(e), 0))
}

// SyncEvent implements cudrv.Context.
func (c *context) SyncEvent(e cudrv.Event) error {
	return check("cuEventSynchronize", event(e).Synchronize())
}

// Elapsed implements cudrv.Context.
func (c *context) Elapsed(from, to cudrv.Event) (int64, error) {
	ms, err := event(from).Elapsed(event(to))
	return int64(ms * 1e6), check("cuEventElapsedTime", err)
}

// CopyIn implements cudrv.Context.
func (c *context) CopyIn(s cudrv.Stream, dst cudrv.Ptr, src []byte) error {
	return check("cuMemcpyHtoDAsync", cu.MemcpyHtoDAsync(cu.DevicePtr(dst), unsafe.Pointer(unsafe.SliceData(src)), int64(len(src)), stream(s)))
}

// CopyOut implements cudrv.Context.
func (c *context) CopyOut(s cudrv.Stream, dst []byte, src cudrv.Ptr) error {
	return check("cuMemcpyDtoHAsync", cu.MemcpyDtoHAsync(unsafe.Pointer(unsafe.SliceData(dst)), cu.DevicePtr(src), int64(len(dst)), stream(s)))
}

// CopyWithin implements cudrv.Context.
func (c *context) CopyWithin(s cudrv.Stream, dst, src cudrv.Ptr, n int) error {
	return check("cuMemcpyDtoDAsync", cu.MemcpyDtoDAsync(cu.DevicePtr(dst), cu.DevicePtr(src), int64(n), stream(s)))
}

// Fill implements cudrv.Context.
func (c *context) Fill(s cudrv.Stream, dst cudrv.Ptr, value byte, n int) error {
	return check("cuMemsetD8Async", cu.MemsetD8Async(cu.DevicePtr(dst), value, int64(n), stream(s)))
}

// Fill32 implements cudrv.Context.
func (c *context) Fill32(s cudrv.Stream, dst cudrv.Ptr, value uint32, n int) error {
	return check("cuMemsetD32Async", cu.MemsetD32Async(cu.DevicePtr(dst), uint(value), int64(n), stream(s)))
}

// DestroyGraph implements cudrv.Context.
func (c *context) DestroyGraph(g cudrv.Graph) error {
	return check("cuGraphDestroy", of[cu.Graph](g).Destroy())
}

// DestroyGraphExec implements cudrv.Context.
func (c *context) DestroyGraphExec(x cudrv.GraphExec) error {
	return check("cuGraphExecDestroy", of[cu.ExecGraph](x).Destroy())
}
