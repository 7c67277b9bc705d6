//go:build cuda && linux

package cudrv_test

import (
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv/internal/cu"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/internal/linked"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

// TestConformanceCu runs the checks through a static library of stubs that call the interpreter, or on
// a device if the program is linked with a real libcuda.
func TestConformanceCu(t *testing.T) {
	s := newStub(vm.New(ptxvm.Config{MemoryBytes: 64 << 20}))
	if !linked.Use(s.call) {
		t.Log("linked with a real libcuda")
	}
	conform(t, cu.Driver{})
	if n := s.openContexts(); n != 0 {
		t.Errorf("%d contexts are still open", n)
	}
}
