//go:build !(cuda && linux)

package system

import (
	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/dlopen"
)

// Open opens the driver's library. It fails with cudrv.ErrUnavailable or
// cudrv.ErrNoDevice where there is nothing to use.
func Open() (cudrv.Driver, error) { return dlopen.Open("") }
