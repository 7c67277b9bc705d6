//go:build !linux

package blockio

import "os"

func open(path string, flag int) (f *os.File, direct bool, err error) {
	f, err = os.OpenFile(path, flag, FileMode)
	return f, false, err
}

func reserve(f *os.File, size int64) error { return f.Truncate(size) }
