//go:build cuda && linux

package system

import (
	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/internal/cu"
)

// Open returns the driver that the program is linked with.
func Open() (cudrv.Driver, error) { return cu.Driver{}, nil }
