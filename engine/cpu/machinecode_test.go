package cpu

import (
	"runtime"
	"testing"

	"github.com/coppice-llm/coppice/internal/isa"
	"github.com/coppice-llm/coppice/internal/isa/isatest"
)

func TestMachineCodeKeepsToItsLevel(t *testing.T) {
	isatest.Check(t, "github.com/coppice-llm/coppice/engine/cpu")
}

// TestPathsTakeKernelsOfTheirLevel also checks paths that this machine can't run.
func TestPathsTakeKernelsOfTheirLevel(t *testing.T) {
	for _, level := range isa.Levels() {
		if level.Arch() == runtime.GOARCH {
			isatest.CheckKernels(t, level, kernelsOf(ISA(level)))
		}
	}
}
