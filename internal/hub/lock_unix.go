//go:build unix && !aix && !solaris

package hub

import (
	"os"
	"syscall"
)

// tryLock locks an open file, or reports false if another process has locked it.
func tryLock(f *os.File) (ok bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}
