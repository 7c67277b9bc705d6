//go:build unix

package storetest

import "syscall"

// makePipe makes a named pipe, and reports whether that worked.
func makePipe(path string) bool { return syscall.Mkfifo(path, 0o660) == nil }
