//go:build !unix

package blockio

import (
	"os"
	"path/filepath"
)

// Alloc is zeroed memory of n bytes, rounded up to Align; give it back with Free.
func Alloc(n int) ([]byte, error) { return make([]byte, (n+Align-1)/Align*Align), nil }

// Free gives back what Alloc gave.
func Free([]byte) error { return nil }

func dirOf(path string) string { return filepath.Dir(path) }

// SyncDir does nothing where directories can't be synced.
func SyncDir(string) error { return nil }

// TryLock can't lock here, and says that it did.
func TryLock(*os.File) (ok bool, err error) { return true, nil }
