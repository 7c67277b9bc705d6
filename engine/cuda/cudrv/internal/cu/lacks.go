//go:build cuda && linux

package cu

/*
#include <cuda.h>
#include <stdint.h>

// launch_buffer launches a kernel with its parameters in one buffer.
static CUresult launch_buffer(uintptr_t f, const unsigned *d, unsigned shared, uintptr_t stream, void *args, size_t bytes) {
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, args, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
	return cuLaunchKernel((CUfunction)f, d[0], d[1], d[2], d[3], d[4], d[5], shared, (CUstream)stream, NULL, extra);
}

static CUresult set_dynamic_shared(uintptr_t f, int bytes) {
	return cuFuncSetAttribute((CUfunction)f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
}

static CUresult begin_capture(uintptr_t stream) {
	return cuStreamBeginCapture((CUstream)stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static CUresult end_capture(uintptr_t stream, uintptr_t *graph) {
	CUgraph g = NULL;
	CUresult r = cuStreamEndCapture((CUstream)stream, &g);
	*graph = (uintptr_t)g;
	return r;
}

static CUresult instantiate(uintptr_t graph, uintptr_t *exec) {
	CUgraphExec x = NULL;
	CUresult r = cuGraphInstantiateWithFlags(&x, (CUgraph)graph, 0);
	*exec = (uintptr_t)x;
	return r;
}

static CUresult launch_graph(uintptr_t exec, uintptr_t stream) {
	return cuGraphLaunch((CUgraphExec)exec, (CUstream)stream);
}
*/
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
)

const sharedPerBlockOptin cu.DeviceAttribute = C.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN

func result(call string, r C.CUresult) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	err := fmt.Errorf("cu: %s", call)
	var text *C.char
	if C.cuGetErrorString(r, &text) == C.CUDA_SUCCESS && text != nil {
		err = fmt.Errorf("cu: %s", C.GoString(text))
	}
	return &cudrv.Error{Call: call, Code: int(r), Err: err}
}

// HostAlloc implements cudrv.Context.
func (c *context) HostAlloc(n int) ([]byte, error) {
	if n <= 0 {
		return nil, invalid("cuMemHostAlloc", errSize)
	}
	var p unsafe.Pointer
	if err := result("cuMemHostAlloc", C.cuMemHostAlloc(&p, C.size_t(n), C.CU_MEMHOSTALLOC_PORTABLE)); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), n), nil
}

// SetMaxDynamicShared implements cudrv.Context.
func (c *context) SetMaxDynamicShared(f cudrv.Function, n int) error {
	return result("cuFuncSetAttribute", C.set_dynamic_shared(C.uintptr_t(f), C.int(n)))
}

// Launch implements cudrv.Context.
func (c *context) Launch(f cudrv.Function, l cudrv.Launch) error {
	var d [6]C.unsigned
	for i := range 3 {
		d[i], d[3+i] = C.unsigned(max(l.Grid[i], 1)), C.unsigned(max(l.Block[i], 1))
	}
	return result("cuLaunchKernel", C.launch_buffer(C.uintptr_t(f), &d[0], C.unsigned(l.SharedBytes), C.uintptr_t(l.Stream),
		unsafe.Pointer(unsafe.SliceData(l.Args)), C.size_t(len(l.Args))))
}

// BeginCapture implements cudrv.Context.
func (c *context) BeginCapture(s cudrv.Stream) error {
	return result("cuStreamBeginCapture", C.begin_capture(C.uintptr_t(s)))
}

// EndCapture implements cudrv.Context.
func (c *context) EndCapture(s cudrv.Stream) (cudrv.Graph, error) {
	var g C.uintptr_t
	err := result("cuStreamEndCapture", C.end_capture(C.uintptr_t(s), &g))
	return cudrv.Graph(g), err
}

// Instantiate implements cudrv.Context.
func (c *context) Instantiate(g cudrv.Graph) (cudrv.GraphExec, error) {
	var x C.uintptr_t
	err := result("cuGraphInstantiate", C.instantiate(C.uintptr_t(g), &x))
	return cudrv.GraphExec(x), err
}

// LaunchGraph implements cudrv.Context.
func (c *context) LaunchGraph(x cudrv.GraphExec, s cudrv.Stream) error {
	return result("cuGraphLaunch", C.launch_graph(C.uintptr_t(x), C.uintptr_t(s)))
}
