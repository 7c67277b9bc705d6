//go:build linux || darwin

package main

import (
	"os"
	"syscall"
)

// writable returns why this user can't make files in a directory.
func writable(dir string) error {
	const write, search = 2, 1 // W_OK and X_OK of access(2)
	if err := syscall.Access(dir, write|search); err != nil {
		return &os.PathError{Op: "access", Path: dir, Err: err}
	}
	return nil
}

// freeBytes returns the room that this user may fill on a directory's file system; -1 if unknown.
func freeBytes(dir string) int64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return -1
	}
	return int64(st.Bavail) * int64(st.Bsize)
}

// lookAtFiles reads the limit on open files. Go has raised it to the hard limit when the process
// started, as it does for every command of this program.
func lookAtFiles(conns int) filesFacts {
	f := filesFacts{Conns: conns}
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) == nil {
		f.Limit, f.Hard = l.Cur, l.Max
	}
	return f
}
