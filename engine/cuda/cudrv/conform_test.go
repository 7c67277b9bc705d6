package cudrv_test

import (
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/gpucheck"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

// TestConformance checks the interpreter's driver. Those of real devices have tests in files of their
// own, with build constraints.
func TestConformance(t *testing.T) {
	conform(t, vm.New(ptxvm.Config{MemoryBytes: 64 << 20}))
}

// conform runs all checks of a driver on its first device. The checks that make the device fail run last: a process
// with a real device must end after them.
func conform(t *testing.T, d cudrv.Driver) {
	for _, c := range gpucheck.DriverChecks() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, d, 0) })
	}
}
