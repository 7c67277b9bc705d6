//go:build unix

package hostmem

import "syscall"

// reserve maps anonymous memory, which is zero and page-aligned. The system assigns physical memory
// on first use.
func reserve(bytes int) ([]byte, error) {
	return syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
}

func release(arena []byte) error { return syscall.Munmap(arena) }
