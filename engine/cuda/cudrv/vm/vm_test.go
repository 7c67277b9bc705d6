package vm_test

import (
	"errors"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

// TestOnlyPinnedMemory checks that copies refuse memory of Go's heap: a real driver could read it
// after the program has reused it.
func TestOnlyPinnedMemory(t *testing.T) {
	c := vm.New(ptxvm.Config{}).OpenDevice()
	s, err := c.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.HostAlloc(64)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{c.CopyIn(s, p, make([]byte, 64)), c.CopyOut(s, make([]byte, 64), p), c.CopyIn(s, p, append(b, 1))} {
		if !errors.Is(err, cudrv.ErrInvalid) {
			t.Errorf("host memory that is not pinned: %v", err)
		}
	}
	if err := c.CopyIn(s, p+16, b[16:32]); err != nil {
		t.Error(err)
	}
}

// TestFaultCode checks that an error has the driver's code and wraps the interpreter's report.
func TestFaultCode(t *testing.T) {
	c := vm.New(ptxvm.Config{}).OpenDevice()
	s, err := c.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	event, err := c.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	sync := errors.Join(c.Record(event, s), c.Fill(s, 1<<40, 0, 4), c.SyncStream(s))
	_, elapsed := c.Elapsed(event, event)
	for _, err := range []error{sync, elapsed} {
		var e *cudrv.Error
		var f *ptxvm.Fault
		if !errors.As(err, &e) || e.Code != cudrv.CodeIllegalAddress || !errors.As(err, &f) || f.Kind != ptxvm.OutOfBounds {
			t.Errorf("%v, want an illegal address", err)
		}
	}
}
