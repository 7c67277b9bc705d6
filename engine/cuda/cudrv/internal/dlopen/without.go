//go:build !(linux && (amd64 || arm64) && (cgo || purego))

package dlopen

import (
	"fmt"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
)

// Open always fails: this build can't open libraries.
func Open(string) (cudrv.Driver, error) {
	return nil, fmt.Errorf("%w: this build of coppice is static and can't open libcuda; build it on Linux with a C compiler installed, or with -tags purego", cudrv.ErrUnavailable)
}
