//go:build unix

package blockio

import (
	"os"
	"path/filepath"
	"syscall"
)

// Alloc returns zeroed, page-aligned memory for transfers, outside the Go heap: n bytes, rounded
// up to a multiple of Align. Return it with Free.
func Alloc(n int) ([]byte, error) {
	n = (n + Align - 1) / Align * Align
	return syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
}

// Free frees memory from Alloc; nil is ignored.
func Free(b []byte) error {
	if b == nil {
		return nil
	}
	return syscall.Munmap(b[:cap(b)])
}

// nonblock is a flag for os.OpenFile: the call does not wait for a writer of a pipe.
const nonblock = syscall.O_NONBLOCK

// stale is the error of a file handle that a network file system no longer knows.
const stale = syscall.ESTALE

func dirOf(path string) string { return filepath.Dir(path) }

// syncDir makes renames in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// TryLock takes the exclusive lock of an open file without waiting; ok is false if another
// process has it. The lock ends when the file is closed or the process ends.
func TryLock(f *os.File) (ok bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}
