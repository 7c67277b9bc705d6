//go:build linux

package cudrv_test

import (
	"errors"
	"sync"
	"syscall"
	"unsafe"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
)

// codeInvalidContext means that the thread has no current context.
const codeInvalidContext = 201

// stub is a libcuda without a device: it implements the calls that the drivers of real devices make,
// by any cudrv.Driver. So these drivers can be tested on a machine without a GPU: C stubs, whose
// source stubSource returns, pass their arguments to call.
//
// It checks threads as a driver does: a call on a thread without current context fails with
// CUDA_ERROR_INVALID_CONTEXT. It also does what the flags of streams, events and captures say, see flags.
type stub struct {
	flags    flags
	change   func(call string, a []uint64) // changes the arguments of a call, to plant a bug; nil: nothing
	mu       sync.Mutex
	driver   cudrv.Driver
	next     uint64
	contexts map[uint64]*primary // by handle
	bound    map[int]uint64      // by thread
}

// primary is a device's primary context.
type primary struct {
	cudrv.Context
	device, retained int
}

// newStub returns a stub with the devices of d.
func newStub(d cudrv.Driver) *stub {
	return &stub{driver: d, flags: newFlags(), contexts: map[uint64]*primary{}, bound: map[int]uint64{}}
}

// call is one function of the driver API. Every argument is an integer or a
// pointer.
type call struct {
	name string
	args int
	do   func(s *stub, a []uint64) error
}

// call makes call f of the table with the arguments at args, and returns a CUresult. It runs on the
// thread of the C caller.
func (s *stub) call(f int, args *uint64) int {
	a := unsafe.Slice(args, calls[f].args)
	if s.change != nil {
		s.change(calls[f].name, a)
	}
	err := s.flags.before(calls[f].name, a)
	if err == nil {
		if err = calls[f].do(s, a); err == nil {
			s.flags.after(calls[f].name, a)
		}
	}
	var e *cudrv.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.Code
	}
	return cudrv.CodeUnknown
}

func fail(code int) error {
	return &cudrv.Error{Call: "stub", Code: code, Err: errors.New("stub: failed")}
}

// current returns the current context of the calling thread.
func (s *stub) current() (cudrv.Context, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.contexts[s.bound[syscall.Gettid()]]; p != nil {
		return p, nil
	}
	return nil, fail(codeInvalidContext)
}

// in makes a call that needs a current context.
func in(do func(c cudrv.Context, a []uint64) error) func(*stub, []uint64) error {
	return func(s *stub, a []uint64) error {
		c, err := s.current()
		if err != nil {
			return err
		}
		return do(c, a)
	}
}

// ask makes a call that needs a context and writes its result through its first argument.
func ask[T any](do func(c cudrv.Context, a []uint64) (T, error)) func(*stub, []uint64) error {
	return in(func(c cudrv.Context, a []uint64) error {
		v, err := do(c, a)
		if err == nil {
			put(a[0], v)
		}
		return err
	})
}

func (s *stub) retain(a []uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	device := int(int32(a[1]))
	for h, p := range s.contexts {
		if p.device == device {
			p.retained++
			put(a[0], h)
			return nil
		}
	}
	c, err := s.driver.Open(device)
	if err != nil {
		return err
	}
	s.next++
	s.contexts[s.next] = &primary{c, device, 1}
	put(a[0], s.next)
	return nil
}

func (s *stub) release(a []uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h, p := range s.contexts {
		if p.device != int(int32(a[0])) {
			continue
		}
		if p.retained--; p.retained > 0 {
			return nil
		}
		delete(s.contexts, h)
		return p.Close()
	}
	return fail(codeInvalidContext)
}

func (s *stub) setCurrent(a []uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.contexts[a[0]] == nil {
		return fail(codeInvalidContext)
	}
	s.bound[syscall.Gettid()] = a[0]
	return nil
}

// openContexts returns the number of open contexts.
func (s *stub) openContexts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.contexts)
}

// at converts an address to a pointer.
func at(address uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

func put[T any](address uint64, v T) { *(*T)(at(address)) = v }

func get[T any](address uint64) T { return *(*T)(at(address)) }

func bytesAt(address, n uint64) []byte { return unsafe.Slice((*byte)(at(address)), n) }

// text returns the C string at an address.
func text(address uint64) []byte {
	n := uint64(0)
	for *(*byte)(unsafe.Add(at(address), n)) != 0 {
		n++
	}
	return bytesAt(address, n)
}
