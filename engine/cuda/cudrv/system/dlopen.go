//go:build !(cuda && linux)

package system

import (
	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/internal/dlopen"
)

// Open opens the driver's library. It fails with cudrv.ErrUnavailable without a usable driver, and
// with cudrv.ErrNoDevice without a device.
func Open() (cudrv.Driver, error) { return dlopen.Open("") }
