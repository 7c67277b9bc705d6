//go:build linux

package cudrv_test

import (
	"sync"
	"syscall"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
)

// Codes and flags of cuda.h.
const (
	codeInvalidHandle   = 400
	codeCaptureImplicit = 906

	streamNonBlocking = 1
	eventNoTiming     = 2
	captureGlobal     = 0
	captureThread     = 1
)

// flags does what the flags of a driver's objects say, as the reference of the driver API describes it:
//
//   - While a stream captures that is not non-blocking, no work may be queued on the legacy default
//     stream, 0, because that would wait for the stream.
//   - While a stream captures, calls that may wait for the device fail, such as allocations: in the mode
//     global on all threads, in the mode thread-local on the thread that has begun to capture.
//   - Events without timing have no elapsed time.
type flags struct {
	mu       sync.Mutex
	blocking map[uint64]bool    // streams that wait for the default stream
	untimed  map[uint64]bool    // events
	captures map[uint64]capture // by stream
}

// capture is the mode of a capture, and the thread that has begun it.
type capture struct {
	mode   uint32
	thread int
}

func newFlags() flags {
	return flags{blocking: map[uint64]bool{}, untimed: map[uint64]bool{}, captures: map[uint64]capture{}}
}

// queues has, by call, the index of the stream among the arguments of calls that queue work.
var queues = map[string]int{"cuLaunchKernel": 8, "cuMemcpyHtoDAsync_v2": 3, "cuMemcpyDtoHAsync_v2": 3, "cuMemcpyDtoDAsync_v2": 3, "cuMemsetD8Async": 3, "cuMemsetD32Async": 3}

// before returns the error of a call that flags forbid now.
func (f *flags) before(call string, a []uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, queued := queues[call]
	for s, c := range f.captures {
		switch {
		case queued && a[at] == 0 && f.blocking[s]:
			return fail(codeCaptureImplicit)
		case call == "cuMemAlloc_v2" || call == "cuMemHostAlloc":
			if c.mode == captureGlobal || c.mode == captureThread && c.thread == syscall.Gettid() {
				return fail(cudrv.CodeCaptureForbidden)
			}
		}
	}
	if call == "cuEventElapsedTime" && (f.untimed[a[1]] || f.untimed[a[2]]) {
		return fail(codeInvalidHandle)
	}
	return nil
}

// after notes the flags of a call that has succeeded.
func (f *flags) after(call string, a []uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch call {
	case "cuStreamCreate":
		f.blocking[get[uint64](a[0])] = uint32(a[1])&streamNonBlocking == 0
	case "cuEventCreate":
		f.untimed[get[uint64](a[0])] = uint32(a[1])&eventNoTiming != 0
	case "cuStreamBeginCapture_v2":
		f.captures[a[0]] = capture{uint32(a[1]), syscall.Gettid()}
	case "cuStreamEndCapture":
		delete(f.captures, a[0])
	}
}
