//go:build unix

package offheap

import "syscall"

// Reserve maps anonymous memory, which is zero and page-aligned. The system assigns physical memory
// on first use.
func Reserve(bytes int) ([]byte, error) {
	return syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
}

// Release frees what Reserve returned.
func Release(arena []byte) error { return syscall.Munmap(arena) }
