package blockio

import (
	"os"

	"golang.org/x/sys/windows"
)

// TryLock takes the exclusive lock of an open file without waiting; ok is false if another
// process has it. The lock ends when the file is closed or the process ends.
func TryLock(f *os.File) (ok bool, err error) {
	c, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	var failed error
	err = c.Control(func(handle uintptr) {
		const all = ^uint32(0) // of the file's bytes; it has none
		failed = windows.LockFileEx(windows.Handle(handle), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, all, all, new(windows.Overlapped))
	})
	if err == nil && (failed == windows.ERROR_LOCK_VIOLATION || failed == windows.ERROR_IO_PENDING) {
		return false, nil
	}
	if err == nil {
		err = failed
	}
	return err == nil, err
}
