//go:build unix

package model

import (
	"os"
	"syscall"
)

// mapping is the read-only contents of a file.
type mapping struct{ data []byte }

// openMapping maps the first size bytes of f, which must be at least 1. The
// mapping outlives f's descriptor.
func openMapping(f *os.File, size int) (*mapping, error) {
	data, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return &mapping{data}, nil
}

func (m *mapping) close() error {
	if m.data == nil {
		return nil
	}
	data := m.data
	m.data = nil
	return os.NewSyscallError("munmap", syscall.Munmap(data))
}
