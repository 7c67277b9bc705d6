//go:build linux

package cudrv_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
)

// calls lists the supported functions; all others fail with CUDA_ERROR_NOT_SUPPORTED.
var calls = []call{
	{"cuInit", 1, func(*stub, []uint64) error { return nil }},
	{"cuDriverGetVersion", 1, func(s *stub, a []uint64) error {
		v, err := s.driver.Version()
		put(a[0], int32(v))
		return err
	}},
	{"cuDeviceGetCount", 1, func(s *stub, a []uint64) error {
		n, err := s.driver.Devices()
		put(a[0], int32(n))
		return err
	}},
	{"cuDeviceGet", 2, func(s *stub, a []uint64) error {
		_, err := s.driver.Properties(int(int32(a[1])))
		put(a[0], int32(a[1]))
		return err
	}},
	{"cuDeviceGetName", 3, func(s *stub, a []uint64) error {
		p, err := s.driver.Properties(int(int32(a[2])))
		copy(bytesAt(a[0], a[1]&0xffff), p.Name+"\x00")
		return err
	}},
	{"cuDeviceTotalMem_v2", 2, func(s *stub, a []uint64) error {
		p, err := s.driver.Properties(int(int32(a[1])))
		put(a[0], uint64(p.MemoryBytes))
		return err
	}},
	{"cuDeviceGetAttribute", 3, func(s *stub, a []uint64) error {
		p, err := s.driver.Properties(int(int32(a[2])))
		put(a[0], int32(map[uint32]int{1: p.MaxThreadsPerBlock, 16: p.Multiprocessors, 75: p.Major, 76: p.Minor, 97: p.SharedPerBlock,
			13: p.ClockKHz, 36: p.MemoryClockKHz, 37: p.BusBits, 38: p.L2Bytes}[uint32(a[1])]))
		return err
	}},
	{"cuDevicePrimaryCtxRetain", 2, (*stub).retain},
	{"cuDevicePrimaryCtxRelease_v2", 1, (*stub).release},
	{"cuCtxSetCurrent", 1, (*stub).setCurrent},
	{"cuGetErrorString", 2, func(_ *stub, a []uint64) error { return fail(cudrv.CodeInvalidValue) }},

	{"cuMemGetInfo_v2", 2, in(func(c cudrv.Context, a []uint64) error {
		free, total, err := c.MemInfo()
		put(a[0], uint64(free))
		put(a[1], uint64(total))
		return err
	})},
	{"cuMemAlloc_v2", 2, ask(func(c cudrv.Context, a []uint64) (cudrv.Ptr, error) { return c.Alloc(int(a[1])) })},
	{"cuMemFree_v2", 1, in(func(c cudrv.Context, a []uint64) error { return c.Free(cudrv.Ptr(a[0])) })},
	{"cuMemHostAlloc", 3, ask(func(c cudrv.Context, a []uint64) (*byte, error) {
		b, err := c.HostAlloc(int(a[1]))
		if err != nil {
			return nil, err
		}
		return &b[0], nil
	})},
	{"cuMemFreeHost", 1, in(func(c cudrv.Context, a []uint64) error { return c.HostFree(bytesAt(a[0], 1)) })},

	{"cuModuleLoadDataEx", 5, ask(load)},
	{"cuModuleGetFunction", 3, ask(func(c cudrv.Context, a []uint64) (cudrv.Function, error) {
		return c.Function(cudrv.Module(a[1]), string(text(a[2])))
	})},
	{"cuFuncSetAttribute", 3, in(func(c cudrv.Context, a []uint64) error {
		if uint32(a[1]) != 8 {
			return fail(cudrv.CodeInvalidValue)
		}
		return c.SetMaxDynamicShared(cudrv.Function(a[0]), int(int32(a[2])))
	})},
	{"cuLaunchKernel", 11, in(launchKernel)},

	{"cuStreamCreate", 2, ask(func(c cudrv.Context, a []uint64) (cudrv.Stream, error) { return c.NewStream() })},
	{"cuStreamSynchronize", 1, in(func(c cudrv.Context, a []uint64) error { return c.SyncStream(cudrv.Stream(a[0])) })},
	{"cuStreamWaitEvent", 3, in(func(c cudrv.Context, a []uint64) error { return c.Wait(cudrv.Stream(a[0]), cudrv.Event(a[1])) })},

	{"cuEventCreate", 2, ask(func(c cudrv.Context, a []uint64) (cudrv.Event, error) { return c.NewEvent() })},
	{"cuEventRecord", 2, in(func(c cudrv.Context, a []uint64) error { return c.Record(cudrv.Event(a[0]), cudrv.Stream(a[1])) })},
	{"cuEventSynchronize", 1, in(func(c cudrv.Context, a []uint64) error { return c.SyncEvent(cudrv.Event(a[0])) })},
	{"cuEventElapsedTime", 3, ask(func(c cudrv.Context, a []uint64) (float32, error) {
		ns, err := c.Elapsed(cudrv.Event(a[1]), cudrv.Event(a[2]))
		return float32(float64(ns) / 1e6), err
	})},

	{"cuMemcpyHtoDAsync_v2", 4, in(func(c cudrv.Context, a []uint64) error {
		return c.CopyIn(cudrv.Stream(a[3]), cudrv.Ptr(a[0]), bytesAt(a[1], a[2]))
	})},
	{"cuMemcpyDtoHAsync_v2", 4, in(func(c cudrv.Context, a []uint64) error {
		return c.CopyOut(cudrv.Stream(a[3]), bytesAt(a[0], a[2]), cudrv.Ptr(a[1]))
	})},
	{"cuMemcpyDtoDAsync_v2", 4, in(func(c cudrv.Context, a []uint64) error {
		return c.CopyWithin(cudrv.Stream(a[3]), cudrv.Ptr(a[0]), cudrv.Ptr(a[1]), int(a[2]))
	})},
	{"cuMemsetD8Async", 4, in(func(c cudrv.Context, a []uint64) error {
		return c.Fill(cudrv.Stream(a[3]), cudrv.Ptr(a[0]), byte(a[1]), int(a[2]))
	})},
	{"cuMemsetD32Async", 4, in(func(c cudrv.Context, a []uint64) error {
		return c.Fill32(cudrv.Stream(a[3]), cudrv.Ptr(a[0]), uint32(a[1]), int(a[2]))
	})},

	{"cuStreamBeginCapture_v2", 2, in(func(c cudrv.Context, a []uint64) error { return c.BeginCapture(cudrv.Stream(a[0])) })},
	{"cuStreamEndCapture", 2, in(func(c cudrv.Context, a []uint64) error {
		g, err := c.EndCapture(cudrv.Stream(a[0]))
		put(a[1], g)
		return err
	})},
	{"cuGraphInstantiateWithFlags", 3, ask(func(c cudrv.Context, a []uint64) (cudrv.GraphExec, error) { return c.Instantiate(cudrv.Graph(a[1])) })},
	{"cuGraphLaunch", 2, in(func(c cudrv.Context, a []uint64) error {
		return c.LaunchGraph(cudrv.GraphExec(a[0]), cudrv.Stream(a[1]))
	})},
	{"cuGraphDestroy", 1, in(func(c cudrv.Context, a []uint64) error { return c.DestroyGraph(cudrv.Graph(a[0])) })},
	{"cuGraphExecDestroy", 1, in(func(c cudrv.Context, a []uint64) error { return c.DestroyGraphExec(cudrv.GraphExec(a[0])) })},
}

// load loads a module. It writes an error to the buffer of CU_JIT_ERROR_LOG_BUFFER, if given.
func load(c cudrv.Context, a []uint64) (cudrv.Module, error) {
	m, err := c.Load(text(a[1]))
	var log, size uint64
	for i := range uint64(uint32(a[2])) {
		switch v := get[uint64](a[4] + 8*i); get[uint32](a[3] + 4*i) {
		case 5:
			log = v
		case 6:
			size = v & 0xffffffff
		}
	}
	if err != nil && log != 0 && size > 0 {
		n := copy(bytesAt(log, size-1), err.Error())
		put(log+uint64(n), byte(0))
	}
	return m, err
}

// launchKernel launches a kernel. It takes the parameters from extra: CU_LAUNCH_PARAM_BUFFER_POINTER and
// CU_LAUNCH_PARAM_BUFFER_SIZE.
func launchKernel(c cudrv.Context, a []uint64) error {
	extra := a[10]
	if a[9] != 0 || extra == 0 {
		return fail(cudrv.CodeInvalidValue)
	}
	var buffer, size uint64
	for ; get[uint64](extra) != 0; extra += 16 {
		switch v := get[uint64](extra + 8); get[uint64](extra) {
		case 1:
			buffer = v
		case 2:
			size = get[uint64](v)
		default:
			return fail(cudrv.CodeInvalidValue)
		}
	}
	dim := func(at int) [3]int { return [3]int{int(uint32(a[at])), int(uint32(a[at+1])), int(uint32(a[at+2]))} }
	return c.Launch(cudrv.Function(a[0]), cudrv.Launch{Grid: dim(1), Block: dim(4), SharedBytes: int(uint32(a[7])), Stream: cudrv.Stream(a[8]),
		Args: bytesAt(buffer, size)})
}

// stubSource returns C source of the stubs. They pass their arguments to the function pointer
// coppice_stub, in the form of stub.call. While coppice_stub is NULL, cuInit returns
// CUDA_ERROR_NO_DEVICE and other calls CUDA_ERROR_NOT_INITIALIZED. Functions in others that the
// table lacks return CUDA_ERROR_NOT_SUPPORTED.
func stubSource(others []string) string {
	var b strings.Builder
	b.WriteString("#include <stdint.h>\n\nint (*coppice_stub)(int f, uint64_t *a);\n\n")
	known := map[string]bool{}
	for f, c := range calls {
		known[c.name] = true
		if c.name == "cuInit" {
			b.WriteString("int cuInit(uint64_t flags) { return coppice_stub ? 0 : 100; }\n")
			continue
		}
		var names []string
		for i := range c.args {
			names = append(names, fmt.Sprint("a", i))
		}
		fmt.Fprintf(&b, "int %s(uint64_t %s) { uint64_t a[] = {%s}; return coppice_stub ? coppice_stub(%d, a) : 3; }\n",
			c.name, strings.Join(names, ", uint64_t "), strings.Join(names, ", "), f)
	}
	for _, name := range others {
		if !known[name] {
			known[name] = true
			fmt.Fprintf(&b, "int %s(void) { return 801; }\n", name)
		}
	}
	return b.String()
}

var (
	header  = flag.String("header", "", "for TestStubSource: cuda.h, of which every function gets a stub")
	sourceC = flag.String("to", "", "for TestStubSource: the file for the C source of a libcuda of stubs")
)

// TestStubSource checks that the stubs have the calls of a driver. With -to it writes their source, so
// that a program for the toolkit's library links with them:
//
//	go test ./engine/cuda/cudrv -run '^TestStubSource$' -args -header cuda.h -to libcuda.c
func TestStubSource(t *testing.T) {
	var names []string
	if *header != "" {
		text, err := os.ReadFile(*header)
		if err != nil {
			t.Fatal(err)
		}
		// Names of functions, and the names that macros give them. An additional type does no harm.
		names = regexp.MustCompile(`\bcu[A-Z]\w*`).FindAllString(string(text), -1)
	}
	source := stubSource(names)
	if n := strings.Count(source, "int cuInit("); n != 1 {
		t.Errorf("%d stubs of cuInit, want 1", n)
	}
	if *sourceC != "" {
		if err := os.WriteFile(*sourceC, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
