//go:build !unix

package blockio

import (
	"io"
	"path/filepath"
)

// nonblock is no flag: opening a file does not wait on this system.
const nonblock = 0

// stale stands for an error that this system does not have.
var stale = io.ErrUnexpectedEOF

// Alloc returns zeroed memory of n bytes, rounded up to a multiple of Align. Return it with Free.
func Alloc(n int) ([]byte, error) { return make([]byte, (n+Align-1)/Align*Align), nil }

// Free does nothing: the memory is on the Go heap.
func Free([]byte) error { return nil }

func dirOf(path string) string { return filepath.Dir(path) }

// syncDir does nothing: directories can't be synced on this system.
func syncDir(string) error { return nil }
